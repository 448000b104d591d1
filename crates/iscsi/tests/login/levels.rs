// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Levels: iSCSIProtocolLevel (RFC 7144 §7.1.1), and what a discovery session has of everything
//! (RFC 7143 §7.4.1, §13.21).

use iscsi::target_role::Settings;
use wire::iscsi::LoginRequest;
use wire::iscsi::Stage;
use wire::iscsi::Tsih;

use crate::driver::Driver;
use crate::driver::INITIATOR;
use crate::driver::last;
use crate::driver::operational;
use crate::driver::request;
use crate::driver::settings;

const KEY: &str = "iSCSIProtocolLevel";

/// Covers: P44-01a/T.
#[test]
fn the_smaller_protocol_level_is_agreed_on() {
    let cases = [("0", "0", 0), ("1", "1", 1), ("2", "2", 2), ("3", "2", 2), ("31", "2", 2)];
    let wrong = ["32", "-1", "two", ""].map(|wrong| (wrong, "Reject", 1));
    for (offer, answer, agreed) in cases.into_iter().chain(wrong) {
        let step = Driver::new().named(last(), &[&format!("{KEY}={offer}")]);
        assert_eq!(step.answer(KEY).as_deref(), Some(answer), "{offer}");
        assert_eq!(step.done().parameters.protocol_level, agreed, "{offer}");
    }
}

/// Covers: P44-01b/T.
#[test]
fn the_protocol_level_is_a_matter_of_the_leading_login() {
    let joins = |request| LoginRequest { tsih: Tsih(7), ..request };
    let step = Driver::new().named(joins(last()), &[&format!("{KEY}=2")]);
    step.assert_failed_for(0x0200, KEY);
    let mut driver = Driver::new();
    driver.named(joins(operational()), &[]);
    driver.keys(joins(last()), &[&format!("{KEY}=2")]).assert_failed_for(0x0200, KEY);
}

/// Covers: P44-01d/T.
#[test]
fn the_protocol_level_is_1_where_nobody_speaks_of_it() {
    for first in [last(), request(Stage::Security, Some(Stage::FullFeature))] {
        let step = Driver::new().named(first, &[]);
        assert_eq!(step.done().parameters.protocol_level, 1);
        assert_eq!(step.answer(KEY), None);
    }
}

/// Whatever a node is set to, and whatever is offered.
///
/// Covers: DIS-13/T, DIS-14/T.
#[test]
fn a_discovery_session_has_one_connection_and_level_0() {
    for level in 0..=2 {
        for (connections, offer) in [(1, "2"), (4, "1"), (4, "8")] {
            let node = Settings {
                error_recovery_level: level,
                max_connections: connections,
                ..settings()
            };
            let pairs = [
                INITIATOR,
                "SessionType=Discovery",
                &format!("ErrorRecoveryLevel={level}"),
                &format!("MaxConnections={offer}"),
            ];
            let step = Driver::with(node).keys(last(), &pairs);
            assert_eq!(step.answer("ErrorRecoveryLevel").as_deref(), Some("0"));
            assert_eq!(step.answer("MaxConnections").as_deref(), Some("1"));
            let agreed = &step.done().parameters;
            assert_eq!((agreed.error_recovery_level, agreed.max_connections), (0, 1));
        }
    }
}
