// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A login as a well-behaved initiator asks for it: one request, every field of which a test may
//! bend.

use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering;

use wire::iscsi::*;

use crate::raw::Pdu;
use crate::raw::Raw;
use crate::raw::text;
use crate::server::TARGET;

/// How to log in.
#[derive(Clone, Debug)]
pub struct LoginPlan {
    /// InitiatorName; None leaves the key out.
    pub initiator: Option<String>,
    /// TargetName; None leaves the key out.
    pub target: Option<String>,
    /// SessionType=Discovery.
    pub discovery: bool,
    /// Of the session.
    pub isid: Isid,
    /// Zero for a new session.
    pub tsih: Tsih,
    /// Of the connection.
    pub cid: Cid,
    /// Of the first command.
    pub cmd_sn: CmdSn,
    /// Acknowledgement of the connection that this one replaces.
    pub exp_stat_sn: StatSn,
    /// Operational keys.
    pub keys: Vec<(String, String)>,
}

impl Default for LoginPlan {
    fn default() -> Self {
        Self::new()
    }
}

impl LoginPlan {
    /// A Normal session of its own with [`TARGET`], all keys at their defaults.
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(1);
        let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        Self {
            initiator: Some("iqn.2026-01.example.conformance:initiator".to_owned()),
            target: Some(TARGET.to_owned()),
            discovery: false,
            isid: Isid([0x80, 0, 0, 1, high, low]),
            tsih: Tsih(0),
            cid: Cid(1),
            cmd_sn: CmdSn(1),
            exp_stat_sn: StatSn(0),
            keys: Vec::new(),
        }
    }

    /// A discovery session that names no target.
    #[must_use]
    pub fn discovery() -> Self {
        Self { target: None, discovery: true, ..Self::new() }
    }

    /// With these operational keys.
    #[must_use]
    pub fn with(mut self, keys: &[(&str, &str)]) -> Self {
        let owned = keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        self.keys.extend(owned);
        self
    }

    /// A Login Request in the operational stage that asks for full feature phase.
    #[must_use]
    pub fn request(&self) -> LoginRequest {
        LoginRequest {
            transit: true,
            continue_: false,
            current: Stage::Operational,
            next: Some(Stage::FullFeature),
            version_max: 0,
            version_min: 0,
            isid: self.isid,
            tsih: self.tsih,
            itt: Itt(0x1091_0000),
            cid: self.cid,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        }
    }

    /// The text of the first request: names, session type, keys.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        let session = self.discovery.then_some("Discovery");
        let names = [
            ("InitiatorName", self.initiator.as_deref()),
            ("TargetName", self.target.as_deref()),
            ("SessionType", session),
        ];
        let mut pairs: Vec<(&str, &str)> =
            names.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        pairs.extend(self.keys.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        text(&pairs)
    }

    /// Sends the first and only request; gives the answer, whatever it says.
    pub fn begin(&self, raw: &mut Raw) -> (LoginResponse, Pdu) {
        raw.send(&Request::Login(self.request()), &self.text());
        let pdu = raw.read();
        match pdu.response() {
            Response::Login(response) => (response, pdu),
            other => panic!("a Login Response was due: {other:?}"),
        }
    }

    /// Logs in; panics unless the login fails with `status` and the connection closes.
    pub fn expect_refused(&self, mut raw: Raw, status: u16) {
        let (response, _) = self.begin(&mut raw);
        assert_eq!(format!("{:04x}", response.status), format!("{status:04x}"), "login status");
        raw.expect_closed();
    }
}
