// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A target that says what a test wants it to say. It logs everybody in and agrees to every key;
//! from then on a script answers each request.

use std::io;
use std::io::Read;
use std::io::Write;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use wire::iscsi::*;

use crate::raw::pairs;
use crate::raw::text;

/// What it tells of numbers at first.
const FIRST_STAT_SN: u32 = 100;

/// How far the command window is open, commands.
const WINDOW: u32 = 64;

/// What a request got for an answer: each PDU takes the next StatSN.
pub type Answers = Vec<(Response, Vec<u8>)>;

/// How a command ends.
pub const fn status(command: &ScsiCommand, numbers: Numbers, status: u8) -> ScsiResponse {
    ScsiResponse {
        response: 0,
        status,
        status_qualifier: 0,
        itt: command.itt,
        snack_tag: 0,
        numbers,
        exp_data_sn: DataSn(0),
        bidi_read_residual: Residual::None,
        residual: Residual::None,
    }
}

/// A command that ends with `status`, and with fixed sense data of this key and code, if any.
pub fn ended(command: &ScsiCommand, numbers: Numbers, code: u8, sense: Option<[u8; 3]>) -> Answers {
    let segment = sense.map(|[key, asc, ascq]| {
        vec![0, 18, 0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0]
    });
    vec![(Response::Scsi(status(command, numbers, code)), segment.unwrap_or_default())]
}

/// All that a command reads, in one PDU with its status, which is GOOD.
pub fn data(command: &ScsiCommand, numbers: Numbers, data: Vec<u8>) -> Answers {
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let short = command.expected_length.saturating_sub(length);
    let residual = if short > 0 { Residual::Underflow(short) } else { Residual::None };
    let answer = DataIn {
        final_: true,
        acknowledge: false,
        status: Some(CollapsedStatus { status: 0, residual }),
        lun: LunField::default(),
        itt: command.itt,
        ttt: Ttt::NONE,
        numbers,
        data_sn: DataSn(0),
        offset: 0,
    };
    vec![(Response::DataIn(answer), data)]
}

/// How long a mock waits for an initiator to close.
const STAYS_MAX: Duration = Duration::from_secs(5);

type Script = Box<dyn FnMut(&Request, &[u8], Numbers) -> Answers + Send>;

/// A request with its data segment.
pub type Said = (Request, Vec<u8>);

/// A running mock; its connections end when the initiator closes them.
#[derive(Debug)]
pub struct Mock {
    portal: SocketAddr,
    said: Arc<Mutex<Vec<Said>>>,
    names: Arc<Mutex<Vec<String>>>,
    /// Connections that come are closed at once.
    shut: Arc<AtomicBool>,
    /// A connection was closed wholly by its initiator.
    closed: Arc<AtomicBool>,
}

/// What a mock says in logins.
#[derive(Clone, Copy, Debug)]
struct Manners {
    /// TargetPortalGroupTag, if it tells.
    group: Option<u16>,
    /// It hangs up when it has logged somebody in.
    hangs_up: bool,
    /// It keeps its half open after a logout, until the initiator takes nothing any more.
    stays: bool,
    /// A command with this opcode is answered over and over, until the initiator leaves; nothing
    /// is read meanwhile.
    repeats: Option<u8>,
}

const PLAIN: Manners = Manners { group: Some(1), hangs_up: false, stays: false, repeats: None };

impl Mock {
    /// Listens. `script` answers each request after the login but a logout; the numbers that it
    /// gets are those of its first answer.
    #[must_use]
    pub fn start(script: impl FnMut(&Request, &[u8], Numbers) -> Answers + Send + 'static) -> Self {
        Self::in_group(1, script)
    }

    /// As `start`, with a portal of this portal group.
    #[must_use]
    pub fn in_group(
        group: u16,
        script: impl FnMut(&Request, &[u8], Numbers) -> Answers + Send + 'static,
    ) -> Self {
        Self::with(Manners { group: Some(group), ..PLAIN }, script)
    }

    /// As `start`, with a portal that does not say of which portal group it is.
    #[must_use]
    pub fn in_no_group(
        script: impl FnMut(&Request, &[u8], Numbers) -> Answers + Send + 'static,
    ) -> Self {
        Self::with(Manners { group: None, ..PLAIN }, script)
    }

    /// A mock that logs everybody in and hangs up then.
    #[must_use]
    pub fn that_hangs_up() -> Self {
        Self::with(Manners { hangs_up: true, ..PLAIN }, |_, _, _| Vec::new())
    }

    /// A mock that does not hang up when it has answered a logout, but looks whether the initiator
    /// does.
    #[must_use]
    pub fn that_stays(
        script: impl FnMut(&Request, &[u8], Numbers) -> Answers + Send + 'static,
    ) -> Self {
        Self::with(Manners { stays: true, ..PLAIN }, script)
    }

    /// A mock that answers a command with this opcode over and over, and reads nothing meanwhile.
    #[must_use]
    pub fn that_repeats(
        opcode: u8,
        script: impl FnMut(&Request, &[u8], Numbers) -> Answers + Send + 'static,
    ) -> Self {
        Self::with(Manners { repeats: Some(opcode), ..PLAIN }, script)
    }

    /// Whether an initiator has closed both halves of its connection after a logout.
    #[must_use]
    pub fn was_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn with(
        manners: Manners,
        script: impl FnMut(&Request, &[u8], Numbers) -> Answers + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let portal = listener.local_addr().expect("an address");
        let said: Arc<Mutex<Vec<Said>>> = Arc::default();
        let names: Arc<Mutex<Vec<String>>> = Arc::default();
        let shut: Arc<AtomicBool> = Arc::default();
        let (of_thread, mut script): (_, Script) = (Arc::clone(&said), Box::new(script));
        let (asked, is_shut) = (Arc::clone(&names), Arc::clone(&shut));
        let closed: Arc<AtomicBool> = Arc::default();
        let is_closed = Arc::clone(&closed);
        thread::spawn(move || {
            // One connection after the other.
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                if !is_shut.load(Ordering::SeqCst) {
                    let watched = manners.stays.then(|| stream.try_clone());
                    let _ = serve(stream, manners, &of_thread, &asked, &mut script);
                    if let Some(Ok(stream)) = watched {
                        is_closed.store(is_closed_by_peer(stream), Ordering::SeqCst);
                    }
                }
            }
        });
        Self { portal, said, names, shut, closed }
    }

    /// Each TargetName that a login had.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        lock(&self.names).clone()
    }

    /// From now on connections that come are closed at once, or served again.
    pub fn shut(&self, shut: bool) {
        self.shut.store(shut, Ordering::SeqCst);
    }

    /// What does so from within a script.
    #[must_use]
    pub fn shutter(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.shut)
    }

    /// Where it listens.
    #[must_use]
    pub const fn portal(&self) -> SocketAddr {
        self.portal
    }

    /// What initiators said so far after their logins, with data segments.
    #[must_use]
    pub fn said(&self) -> Vec<Said> {
        lock(&self.said).clone()
    }
}

/// One connection up to its end.
fn serve(
    mut stream: TcpStream,
    manners: Manners,
    said: &Mutex<Vec<Said>>,
    names: &Mutex<Vec<String>>,
    script: &mut Script,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stat_sn = StatSn(FIRST_STAT_SN);
    loop {
        let (header, data) = read_pdu(&mut stream)?;
        let Ok(request) = Request::parse(&header) else { return Ok(()) };
        let numbers = numbers(&request, stat_sn);
        let answers = match &request {
            Request::Login(login) => {
                let names_in = pairs(&data).into_iter().filter(|(key, _)| key == "TargetName");
                lock(names).extend(names_in.map(|(_, name)| name));
                vec![log_in(login, manners, &data, numbers)]
            }
            Request::Logout(pdu) => {
                let (time2wait, time2retain) = (0, 0);
                let itt = pdu.itt;
                let answer = LogoutResponse { response: 0, itt, numbers, time2wait, time2retain };
                vec![(Response::Logout(answer), Vec::new())]
            }
            _ => {
                lock(said).push((request, data.clone()));
                script(&request, &data, numbers)
            }
        };
        loop {
            for (answer, data) in &answers {
                stat_sn = StatSn(stat_sn.0.wrapping_add(1));
                let length = u32::try_from(data.len()).expect("a short one");
                let mut bytes = answer.emit(length).to_vec();
                bytes.extend_from_slice(data);
                bytes.resize(BHS_LEN + pad4(data.len()), 0);
                stream.write_all(&bytes)?;
            }
            let opcode = match &request {
                Request::Command(command) => command.cdb.bytes.first().copied(),
                _ => None,
            };
            if opcode.is_none() || opcode != manners.repeats {
                break;
            }
        }
        let is_in = match &request {
            Request::Login(login) => login.transit && login.next == Some(Stage::FullFeature),
            _ => false,
        };
        if matches!(request, Request::Logout(_)) || manners.hangs_up && is_in {
            return Ok(());
        }
    }
}

/// Whether the peer of a connection sends nothing more and takes nothing more.
fn is_closed_by_peer(mut stream: TcpStream) -> bool {
    let mut rest = [0];
    if stream.set_read_timeout(Some(STAYS_MAX)).is_err() {
        return false;
    }
    match stream.read(&mut rest) {
        Ok(0) => {}
        Err(error) => return error.kind() == io::ErrorKind::ConnectionReset,
        Ok(_) => return false,
    }
    let begun = Instant::now();
    while begun.elapsed() < STAYS_MAX {
        // The answer to what it does not take is a reset.
        if stream.write_all(&[0; BHS_LEN]).is_err() {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    false
}

/// The window is open from the number that a request has, or announces.
fn numbers(request: &Request, stat_sn: StatSn) -> Numbers {
    let number = match request {
        Request::Command(pdu) => pdu.cmd_sn.0.wrapping_add(u32::from(!pdu.immediate)),
        Request::Login(pdu) => pdu.cmd_sn.0,
        Request::Text(pdu) => pdu.cmd_sn.0,
        Request::NopOut(pdu) => pdu.cmd_sn.0,
        Request::TaskManagement(pdu) => pdu.cmd_sn.0,
        Request::Logout(pdu) => pdu.cmd_sn.0,
        Request::DataOut(_) | Request::Snack(_) => 0,
    };
    let max_cmd_sn = CmdSn(number.wrapping_add(WINDOW));
    Numbers { stat_sn, exp_cmd_sn: CmdSn(number), max_cmd_sn }
}

/// Agrees to what is asked for, without digests.
fn log_in(
    login: &LoginRequest,
    manners: Manners,
    data: &[u8],
    numbers: Numbers,
) -> (Response, Vec<u8>) {
    let group = manners.group.map(|group| group.to_string());
    let offered = pairs(data);
    let mut answers: Vec<(&str, &str)> = Vec::new();
    if let Some(group) = &group
        && login.tsih == Tsih(0)
        && offered.iter().any(|(key, _)| key == "InitiatorName")
    {
        answers.push(("TargetPortalGroupTag", group));
    }
    for (key, value) in &offered {
        match key.as_str() {
            "HeaderDigest" | "DataDigest" | "AuthMethod" => answers.push((key, "None")),
            "InitiatorName" | "InitiatorAlias" | "TargetName" | "SessionType" => {}
            "MaxRecvDataSegmentLength" => answers.push((key, "8192")),
            _ => answers.push((key, value)),
        }
    }
    let response = LoginResponse {
        transit: login.transit,
        continue_: false,
        current: login.current,
        next: login.next,
        version_max: 0,
        version_active: 0,
        isid: login.isid,
        tsih: Tsih(1),
        itt: login.itt,
        numbers,
        status: 0,
    };
    (Response::Login(response), text(&answers))
}

fn read_pdu(stream: &mut TcpStream) -> io::Result<([u8; BHS_LEN], Vec<u8>)> {
    let mut header = [0; BHS_LEN];
    stream.read_exact(&mut header)?;
    let bhs = BhsView::new_checked(&header).map_err(|_| io::ErrorKind::InvalidData)?;
    let length = bhs.data_segment_length() as usize;
    let mut data = vec![0; pad4(length)];
    stream.read_exact(&mut data)?;
    data.truncate(length);
    Ok((header, data))
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
