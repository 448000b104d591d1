// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plays initiator, mover and node for a [`Login`], and checks on the way what must hold for every
//! response.

use core::time::Duration;

use clock::Instant;
use iscsi::datamover::Capabilities;
use iscsi::datamover::Event;
use iscsi::datamover::Immediate;
use iscsi::datamover::Keys;
use iscsi::datamover::Op;
use iscsi::target_role::Admission;
use iscsi::target_role::AdmissionRequest;
use iscsi::target_role::Authentication;
use iscsi::target_role::DigestPolicy;
use iscsi::target_role::LoggedIn;
use iscsi::target_role::Login;
use iscsi::target_role::LoginOutput;
use iscsi::target_role::Settings;
use wire::iscsi::Cid;
use wire::iscsi::CmdSn;
use wire::iscsi::Isid;
use wire::iscsi::Itt;
use wire::iscsi::LoginRequest;
use wire::iscsi::LoginResponse;
use wire::iscsi::Request;
use wire::iscsi::Response;
use wire::iscsi::Stage;
use wire::iscsi::StatSn;
use wire::iscsi::Tsih;

pub(crate) const INITIATOR: &str = "InitiatorName=iqn.2001-04.com.example:host";
pub(crate) const TARGET: &str = "TargetName=iqn.2001-04.com.example:disk";
pub(crate) const FIRST_STAT_SN: u32 = 0xffff_fffe;
pub(crate) const TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) struct Driver {
    pub(crate) login: Login,
    pub(crate) now: Instant,
    pub(crate) admission: Admission,
    pub(crate) tsih: Result<Tsih, u16>,
    next_stat_sn: u32,
}

/// What came out of one request.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) responses: Vec<Reply>,
    pub(crate) admit: Option<AdmissionRequest>,
    pub(crate) established: bool,
    pub(crate) keys: Option<Keys>,
    pub(crate) done: Option<LoggedIn>,
    pub(crate) terminated: bool,
    /// Status and reason.
    pub(crate) failed: Option<(Option<u16>, String)>,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) header: LoginResponse,
    pub(crate) data: Vec<u8>,
}

pub(crate) fn settings() -> Settings {
    Settings {
        max_recv_data_segment_length: 262_144,
        max_burst_length: 1_048_576,
        first_burst_length: 131_072,
        initial_r2t: false,
        immediate_data: true,
        max_outstanding_r2t: 8,
        queue_depth: 32,
        max_connections: 4,
        header_digest: DigestPolicy::Any,
        data_digest: DigestPolicy::Any,
        login_timeout: TIMEOUT,
        ping_interval: Duration::from_secs(30),
        ping_timeout: Duration::from_secs(30),
        time2wait: 2,
        time2retain: 20,
        error_recovery_level: 0,
        ..Settings::default()
    }
}

/// A request from `current` to `next`, or with T=0.
pub(crate) fn request(current: Stage, next: Option<Stage>) -> LoginRequest {
    LoginRequest {
        transit: next.is_some(),
        continue_: false,
        current,
        next,
        version_max: 0,
        version_min: 0,
        isid: Isid([0x80, 1, 0x23, 0x45, 0, 1]),
        tsih: Tsih(0),
        itt: Itt(0x10),
        cid: Cid(1),
        cmd_sn: CmdSn(5),
        exp_stat_sn: StatSn(0),
    }
}

/// From the operational stage to full feature phase.
pub(crate) fn last() -> LoginRequest {
    request(Stage::Operational, Some(Stage::FullFeature))
}

/// In the operational stage, T=0.
pub(crate) fn operational() -> LoginRequest {
    request(Stage::Operational, None)
}

/// In the security stage, T=0.
pub(crate) fn security() -> LoginRequest {
    request(Stage::Security, None)
}

pub(crate) fn text(pairs: &[&str]) -> Vec<u8> {
    pairs.iter().flat_map(|pair| pair.bytes().chain([0])).collect()
}

impl Driver {
    pub(crate) fn new() -> Self {
        Self::with(settings())
    }

    pub(crate) fn with(settings: Settings) -> Self {
        Self::over(Capabilities::STREAM, settings)
    }

    /// A connection whose mover can do this.
    pub(crate) fn over(capabilities: Capabilities, settings: Settings) -> Self {
        Self {
            login: Login::new(Instant(0), StatSn(FIRST_STAT_SN), TIMEOUT, capabilities),
            now: Instant(0),
            admission: Admission::Granted {
                portal_group_tag: 1,
                target_alias: None,
                settings,
                authentication: Authentication::Off,
            },
            tsih: Ok(Tsih(7)),
            next_stat_sn: FIRST_STAT_SN,
        }
    }

    pub(crate) fn alias(mut self, alias: &str) -> Self {
        if let Admission::Granted { target_alias, .. } = &mut self.admission {
            *target_alias = Some(alias.to_string());
        }
        self
    }

    /// Sends a request whose text is `pairs` after the names of a Normal session.
    pub(crate) fn named(&mut self, request: LoginRequest, pairs: &[&str]) -> Step {
        self.send(request, &text(&[&[INITIATOR, TARGET], pairs].concat()))
    }

    pub(crate) fn keys(&mut self, request: LoginRequest, pairs: &[&str]) -> Step {
        self.send(request, &text(pairs))
    }

    /// Sends a request that need not repeat what the first one said.
    pub(crate) fn send_unchecked(&mut self, request: LoginRequest, data: &[u8]) -> Step {
        let event = Event::Control { request: Request::Login(request), immediate: Immediate::None };
        self.event(event, &[], data)
    }

    pub(crate) fn send(&mut self, request: LoginRequest, data: &[u8]) -> Step {
        let step = self.send_unchecked(request, data);
        for reply in &step.responses {
            let header = &reply.header;
            assert_eq!(header.isid, request.isid);
            assert!(request.transit || !header.transit, "T=1 answers T=0");
            assert!(
                !header.transit || rank(header.next) <= rank(request.next),
                "NSG above the one asked for"
            );
            if header.status == 0 {
                assert_eq!(header.itt, request.itt);
                assert_eq!(header.current, request.current);
            }
            if request.continue_ && header.status == 0 {
                assert!(reply.data.is_empty() && !header.transit);
            }
        }
        step
    }

    pub(crate) fn event(&mut self, event: Event, header: &[u8], data: &[u8]) -> Step {
        self.login.handle_event(event, header, data, self.now);
        self.drain()
    }

    pub(crate) fn drain(&mut self) -> Step {
        let mut step = Step::default();
        while let Some(output) = self.login.poll_output() {
            assert!(step.done.is_none() && step.failed.is_none(), "output after the end");
            match output {
                LoginOutput::Op(op) => self.op(op, &mut step),
                LoginOutput::Admit(request) => {
                    step.admit = Some(request);
                    self.login.admit(self.admission.clone());
                }
                LoginOutput::Establish => {
                    step.established = true;
                    self.login.establish(self.tsih);
                }
                LoginOutput::Done(logged_in) => {
                    assert!(step.keys.is_some(), "the mover hears of the keys first");
                    assert_eq!(logged_in.stat_sn.0, self.next_stat_sn);
                    step.done = Some(logged_in);
                }
                LoginOutput::Failed { status, reason } => {
                    assert!(step.terminated, "the connection is closed first");
                    assert_eq!(
                        step.responses.last().map_or(0, |r| r.header.status),
                        status.unwrap_or(0)
                    );
                    step.failed = Some((status, reason));
                }
            }
        }
        let over = step.done.is_some() || step.failed.is_some();
        assert_eq!(self.login.poll_timeout().is_none(), over || self.is_over());
        step
    }

    fn is_over(&self) -> bool {
        self.login.poll_timeout().is_none()
    }

    fn op(&mut self, op: Op, step: &mut Step) {
        assert!(!step.terminated, "an op after the last one");
        match op {
            Op::SendControl { response: Response::Login(header), data, task: None } => {
                assert!(step.keys.is_none(), "the final response goes out under the old keys");
                check_response(&header, &data);
                assert_eq!(header.numbers.stat_sn.0, self.next_stat_sn);
                self.next_stat_sn = self.next_stat_sn.wrapping_add(1);
                step.responses.push(Reply { header, data });
            }
            Op::NoticeKeys(keys) => step.keys = Some(keys),
            Op::Terminate => step.terminated = true,
            other => panic!("unexpected {other:?}"),
        }
    }
}

fn check_response(header: &LoginResponse, data: &[u8]) {
    assert!(data.len() <= 8192);
    assert_eq!(header.transit, header.next.is_some());
    assert!(!(header.transit && header.continue_), "T and C");
    assert!(header.next.is_none_or(|next| next != header.current));
    if header.status != 0 {
        // What fails has no keys, but that no method of the offer was taken, or where to go.
        let said = match header.status {
            0x0201 => *data == *b"AuthMethod=Reject\0",
            0x0101 | 0x0102 => data.starts_with(b"TargetAddress="),
            _ => false,
        };
        assert!(!header.transit && (data.is_empty() || said));
    }
    let window = header.numbers.max_cmd_sn.0.wrapping_sub(header.numbers.exp_cmd_sn.0);
    assert!(window < 1 << 16, "MaxCmdSN below ExpCmdSN");
}

impl Step {
    /// The only response.
    pub(crate) fn reply(&self) -> &Reply {
        assert_eq!(self.responses.len(), 1, "{self:?}");
        &self.responses[0]
    }

    /// The answers of the only response, in order.
    pub(crate) fn answers(&self) -> Vec<String> {
        self.reply().answers()
    }

    /// The answer to one key.
    #[track_caller]
    pub(crate) fn answer(&self, key: &str) -> Option<String> {
        assert!(self.failed.is_none(), "{:?}", self.failed);
        let prefix = format!("{key}=");
        let mut found = self
            .answers()
            .into_iter()
            .filter_map(|pair| pair.strip_prefix(&prefix).map(ToString::to_string));
        let answer = found.next();
        assert_eq!(found.next(), None, "{key} answered twice");
        answer
    }

    #[track_caller]
    pub(crate) fn done(&self) -> &LoggedIn {
        self.done.as_ref().unwrap_or_else(|| panic!("not logged in: {:?}", self.failed))
    }

    /// The login failed with `status`, told to the initiator.
    #[track_caller]
    pub(crate) fn assert_failed(&self, status: u16) {
        let (told, reason) = self.failed.as_ref().expect("the login must fail");
        assert_eq!(*told, Some(status), "{reason}");
        assert!(self.terminated && self.done.is_none());
    }

    /// The login failed with `status` and the log says `word`.
    #[track_caller]
    pub(crate) fn assert_failed_for(&self, status: u16, word: &str) {
        self.assert_failed(status);
        let (_, reason) = self.failed.as_ref().expect("checked above");
        assert!(reason.contains(word), "{reason}");
    }

    /// The connection was closed without a word.
    #[track_caller]
    pub(crate) fn assert_silent(&self) {
        assert!(self.responses.is_empty() && self.terminated);
        assert_eq!(self.failed.as_ref().map(|(status, _)| *status), Some(None));
    }
}

impl Reply {
    pub(crate) fn answers(&self) -> Vec<String> {
        let text = core::str::from_utf8(&self.data).expect("text is UTF-8");
        text.split_terminator('\0').map(ToString::to_string).collect()
    }
}

fn rank(stage: Option<Stage>) -> u8 {
    match stage {
        None => 0,
        Some(Stage::Security) => 1,
        Some(Stage::Operational) => 2,
        Some(Stage::FullFeature) => 3,
    }
}
