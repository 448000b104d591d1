// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whatever an initiator sends, a login goes on, ends well or ends in a refusal. The driver checks
//! each response.

use iscsi::chap::Mutual;
use iscsi::datamover::Event;
use iscsi::target_role::Admission;
use iscsi::target_role::Authentication;
use iscsi::target_role::Settings;
use proptest::prelude::*;
use wire::iscsi::LoginRequest;
use wire::iscsi::Stage;
use wire::iscsi::Tsih;

use crate::authentication::exchange;
use crate::driver::Driver;
use crate::driver::INITIATOR;
use crate::driver::TARGET;
use crate::driver::operational;
use crate::driver::settings;

const NAMES: &[&str] = &[
    "InitiatorName",
    "TargetName",
    "SessionType",
    "InitiatorAlias",
    "TargetAlias",
    "AuthMethod",
    "CHAP_A",
    "CHAP_I",
    "CHAP_C",
    "CHAP_N",
    "CHAP_R",
    "HeaderDigest",
    "DataDigest",
    "MaxConnections",
    "SendTargets",
    "InitialR2T",
    "ImmediateData",
    "MaxRecvDataSegmentLength",
    "MaxBurstLength",
    "FirstBurstLength",
    "DefaultTime2Wait",
    "ErrorRecoveryLevel",
    "TaskReporting",
    "iSCSIProtocolLevel",
    "X#NodeArchitecture",
    "OFMarkInt",
    "RDMAExtensions",
    "X-a",
    "",
    "K",
];
const VALUES: &[&str] = &[
    "Yes",
    "No",
    "None",
    "CRC32C,None",
    "0",
    "1",
    "512",
    "65536",
    "16777215",
    "0x400",
    "4294967296",
    "Normal",
    "Discovery",
    "Reject",
    "Irrelevant",
    "NotUnderstood",
    "RFC3720",
    "CHAP",
    "hostuser",
    "0x00",
    "0bAAAA",
    "7,5",
    "1~2",
    "",
    "a=b",
    "iqn.2001-04.com.example:a",
];

fn stage() -> impl Strategy<Value = Stage> {
    prop_oneof![
        3 => Just(Stage::Security),
        6 => Just(Stage::Operational),
        1 => Just(Stage::FullFeature),
    ]
}

fn any_request() -> impl Strategy<Value = LoginRequest> {
    let tsih = prop_oneof![9 => Just(0_u16), 1 => any::<u16>()];
    (any::<bool>(), prop::bool::weighted(0.2), stage(), stage(), tsih, prop::bool::weighted(0.05))
        .prop_map(|(transit, continue_, current, next, tsih, version)| LoginRequest {
            transit,
            continue_,
            current,
            next: transit.then_some(next),
            tsih: Tsih(tsih),
            version_min: version.into(),
            ..operational()
        })
}

fn pair() -> impl Strategy<Value = Vec<u8>> {
    (prop::sample::select(NAMES), prop::sample::select(VALUES))
        .prop_map(|(name, value)| format!("{name}={value}\0").into_bytes())
}

fn any_text() -> impl Strategy<Value = Vec<u8>> {
    let names = Just(crate::driver::text(&[INITIATOR, TARGET]));
    let part = prop_oneof![
        4 => names,
        8 => pair(),
        1 => prop::collection::vec(any::<u8>(), 0..40),
        1 => Just(b"A=\0".repeat(2700)),
    ];
    prop::collection::vec(part, 0..6).prop_map(|parts| {
        let mut text = parts.concat();
        text.truncate(8192);
        text
    })
}

fn authentication() -> impl Strategy<Value = Authentication> {
    prop_oneof![
        2 => Just(Authentication::Off),
        1 => Just(Authentication::Optional(exchange(Mutual::OnRequest))),
        1 => Just(Authentication::Required(exchange(Mutual::Required))),
    ]
}

fn granted() -> impl Strategy<Value = Admission> {
    let alias = proptest::option::of(".{0,10}");
    let numbers = (any::<u16>(), any::<u32>(), any::<u32>(), any::<u16>());
    (numbers, alias, authentication()).prop_map(
        |((portal_group_tag, burst, first, queue_depth), target_alias, authentication)| {
            Admission::Granted {
                portal_group_tag,
                target_alias,
                authentication,
                settings: Settings {
                    max_burst_length: burst,
                    first_burst_length: first,
                    queue_depth,
                    ..settings()
                },
            }
        },
    )
}

fn admission() -> impl Strategy<Value = Admission> {
    let refused = any::<u16>().prop_map(|status| Admission::Refused { status, reason: "drawn" });
    prop_oneof![4 => granted(), 1 => refused]
}

proptest! {
    #[test]
    fn any_sequence_of_requests_is_survived(
        requests in prop::collection::vec((any_request(), any_text()), 1..12),
        admission in admission(),
        tsih in prop::result::maybe_ok(any::<u16>().prop_map(Tsih), any::<u16>()),
    ) {
        let mut driver = Driver::new();
        driver.admission = admission;
        driver.tsih = tsih;
        for (request, text) in requests {
            let over = driver.login.poll_timeout().is_none();
            let step = driver.send_unchecked(request, &text);
            prop_assert!(!over || step.responses.is_empty(), "a response after the end");
            let required = matches!(&driver.admission,
                Admission::Granted { authentication: Authentication::Required(_), .. });
            prop_assert!(!required || step.done.is_none(), "no text here holds a right response");
            let ended = driver.login.poll_timeout().is_none();
            prop_assert!(ended || step.responses.len() == 1, "one response to one request");
        }
    }

    #[test]
    fn any_header_of_a_rejected_pdu_is_survived(
        header in prop::collection::vec(any::<u8>(), 0..64),
        begun in any::<bool>(),
    ) {
        let mut driver = Driver::new();
        if begun {
            driver.named(operational(), &[]);
        }
        let step = driver.event(Event::Rejected { reason: 4 }, &header, &[]);
        prop_assert!(step.failed.is_some());
    }
}
