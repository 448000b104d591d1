// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong, where, and what the target said about it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use clock::Instant;
use iscsi::initiator::DeclareError;
use iscsi::initiator::Ending;
use iscsi::initiator::LoginError;
use iscsi::initiator::Refused;
use iscsi::initiator::SessionError;
use iscsi::initiator::Step;
use iscsi::initiator::discovery::DiscoveryError;
use wire::iscsi::Cdb;
use wire::scsi::Sense;
use wire::scsi::asc;
use wire::scsi::cdb::BlockCommand;
use wire::scsi::cdb::CdbView;
use wire::scsi::cdb::Group;
use wire::scsi::opcode::Opcode;
use wire::scsi::sam;

use crate::OptionsError;
use crate::StripeError;

/// Why something failed, and at which target, unit and block. Cheap to clone.
///
/// [`Debug`](fmt::Debug) writes what [`Display`](fmt::Display) does: that is what a `main` prints
/// that returns it. Its parts have methods.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: Kind,
    /// Of a stripe.
    member: Option<usize>,
    target: Option<String>,
    lun: Option<u16>,
    command: Option<Cdb>,
    /// For how long the target has answered so.
    busy: Option<Duration>,
}

/// The kinds of errors.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Kind {
    /// The options make no session.
    #[error("{0}")]
    Options(OptionsError),
    /// No portal took a connection.
    #[error("cannot connect to {portals}: {reason}")]
    Unreachable {
        /// `host:port`, several with commas.
        portals: String,
        /// What the system said.
        reason: String,
        /// Its number (`errno`), where it said the same of all.
        system: Option<i32>,
    },
    /// The login failed.
    #[error("login failed: {0}")]
    Login(LoginError),
    /// Only a login to the portal group of the lost session ends that session.
    #[error(
        "the portal belongs to the group {got}; writes of the lost session may still be carried \
         out until its own group {expected} has another one"
    )]
    Fenced {
        /// TargetPortalGroupTag of the portal.
        got: u16,
        /// That of the lost session.
        expected: u16,
    },
    /// It cannot be told whether a login would end the lost session.
    #[error(
        "the target does not say to which group the portal belongs; writes of the lost session may \
         still be carried out until its own portal has another one"
    )]
    GroupUntold,
    /// The login succeeded, and [`Options::witness`](crate::Options::witness) did not take the
    /// session; why.
    #[error("the session cannot be used: {0}")]
    NotRemembered(String),
    /// The target sends the login from one address to the next.
    #[error("login failed: more redirections than are followed; the last one to {0}")]
    Redirections(String),
    /// The session ended, and no new one could be had in time.
    #[error("the session ended: {0}")]
    Session(SessionError),
    /// The command ended without a status.
    #[error("{0}")]
    Ending(Ending),
    /// The command was not answered in time, and something is done about it.
    #[error("no answer for {}; {step}", seconds(*.after))]
    Overdue {
        /// Since it was sent.
        after: Duration,
        /// What is done now.
        step: Step,
    },
    /// The command ended with a status that is not GOOD.
    #[error("{}", describe_status(*.status, .sense.as_ref()))]
    Status {
        /// SAM-5 status code.
        status: u8,
        /// Sense data, if it could be read.
        sense: Option<Sense>,
        /// Sense data as it came.
        raw: Vec<u8>,
    },
    /// Less data than the command asked for, although its status is GOOD.
    #[error("{received} bytes came instead of {expected}, though the status is GOOD")]
    Short {
        /// Bytes.
        received: u32,
        /// Bytes.
        expected: u32,
    },
    /// Not all data of the command was taken, although its status is GOOD (RFC 7143 §11.4.5.1).
    #[error("the target did not take all data ({0:?}), though the status is GOOD")]
    Untaken(wire::iscsi::Residual),
    /// Parameter data that is not as its standard says.
    #[error("the target returned malformed {0}")]
    Malformed(&'static str),
    /// The answer to SendTargets.
    #[error("malformed list of targets: {0}")]
    Discovery(DiscoveryError),
    /// The target refused SendTargets.
    #[error("the target rejected the question for its targets (reason {0:#04x})")]
    DiscoveryRejected(u8),
    /// A value that was declared in a session is not in force.
    #[error("cannot change the longest data segment: {0}")]
    Declaration(DeclareError),
    /// The answer to a task management function, other than that it is complete.
    #[error("{}", describe_management(*.0))]
    Management(u8),
    /// The session does not take the request now.
    #[error("{0}")]
    Refused(Refused),
    /// The range ends beyond the disk.
    #[error("the range ends at byte {end}, the disk at byte {size}")]
    Range {
        /// First byte behind the range.
        end: u64,
        /// Size of the disk, bytes.
        size: u64,
    },
    /// The range is not made of whole blocks.
    #[error("the range is not made of whole blocks of {0} bytes")]
    Unaligned(u32),
    /// COMPARE AND WRITE found other data, and wrote nothing.
    #[error("the disk has other data there than was expected{}", at_byte(*.at))]
    Miscompare {
        /// The first byte that is different, counted from that of the operation, if the unit says.
        at: Option<u64>,
    },
    /// The unit has no such command.
    #[error("the unit has no {0}")]
    Unsupported(&'static str),
    /// More than one command takes, where it must not be cut.
    #[error("{blocks} blocks are more than the {max} that the unit takes at once")]
    TooLong {
        /// Blocks of the operation.
        blocks: u64,
        /// Blocks that the unit takes.
        max: u64,
    },
    /// What belongs together is not of one length.
    #[error("{expected} bytes to compare, but {new} to write")]
    Uneven {
        /// Bytes to compare.
        expected: usize,
        /// Bytes to write.
        new: usize,
    },
    /// The disk has been formatted anew.
    #[error("the disk has blocks of {now} bytes now, instead of {was}")]
    Reformatted {
        /// Bytes in a block when it was opened.
        was: u32,
        /// Bytes in a block now.
        now: u32,
    },
    /// There is no path that carries this now.
    #[error("no path to the disk can be used now")]
    NoPath,
    /// Paths that lead to different disks.
    #[error("the paths lead to different disks: one to {first}, another to {other}")]
    OtherPath {
        /// How the disk behind the path names itself that was asked first.
        first: String,
        /// How the one behind another path does.
        other: String,
    },
    /// Disks that are no stripe, or what one does not do.
    #[error("{0}")]
    Stripe(StripeError),
    /// Paths that lead to disks of one name that are not one.
    #[error(
        "the paths lead to disks that call themselves the same and are not: one has {first}, \
         another {other}"
    )]
    OtherSize {
        /// What the first path leads to.
        first: String,
        /// And this one.
        other: String,
    },
    /// Paths over which a disk takes writes, and over which it does not.
    #[error(
        "the disk is write protected over {protected}, and not over {writable}: writes would fail \
         or not, as they go over the one or the other"
    )]
    OtherProtection {
        /// The path of the one kind: its number from one, and its portal.
        protected: String,
        /// That of the other.
        writable: String,
    },
    /// A disk without a name cannot be known to be one behind several paths.
    #[error(
        "the disk has no name in its page of device identification (83h), so nothing shows that \
         the paths lead to one"
    )]
    Nameless,
    /// Paths by several targets to a disk whose name is one within its target.
    #[error(
        "the disk is known as {name} alone, which another target may give to another disk, so \
         nothing shows that the paths lead to one"
    )]
    LocalName {
        /// How it is known.
        name: String,
    },
    /// Something that was written over a path that is lost may still be carried out, and would come
    /// over this.
    #[error(
        "an earlier write to the same place went over a path that is lost, and may still be \
         carried out: no login over a portal of that path's group has ended its session in time"
    )]
    InDoubt,
    /// The disk behind the LUN is another one than before, as after a restart of its target. Final
    /// for the unit and this session: nothing more goes to it. What was written before is on the
    /// disk that was there.
    #[error(
        "the disk behind this LUN is another one than before: it was {was}, and is {now}; nothing \
         more is sent to it"
    )]
    OtherDisk {
        /// How the one before named itself.
        was: String,
        /// How this one does.
        now: String,
    },
    /// The unit was asked whether it is the disk that it was, and told each time that what it says
    /// of itself has changed: the commands that waited for the answer were not sent. The next one
    /// has it asked again.
    #[error(
        "the unit tells that it has changed whenever it is asked whether it is the disk that it \
         was, {rounds} times by now; nothing was sent to it"
    )]
    Unsettled {
        /// How often it was asked.
        rounds: u32,
    },
    /// What was written since the last flush may be gone: all that was written, where a unit has no
    /// SYNCHRONIZE CACHE.
    #[error(
        "writes since the last flush may be lost: the unit failed to keep them, was reset, or its \
         target began anew meanwhile"
    )]
    WritesLost,
    /// Writes are acknowledged before they are on stable storage, and nothing brings them there.
    #[error(
        "the unit has a volatile write cache and no SYNCHRONIZE CACHE: only writes with FUA are \
         on stable storage"
    )]
    CannotFlush,
    /// The device is none that blocks can be read from.
    #[error("{0}")]
    NotADisk(String),
    /// As many requests or bytes are under way as there may be.
    #[error("as many requests or bytes are under way as there may be")]
    Full,
    /// A session was abandoned with something under way, and no other one took its place in time.
    #[error(
        "no other session took the place of the one that was abandoned: some of what was written \
         may still be carried out"
    )]
    NotReplaced,
    /// This program wanted no longer to wait ([`crate::InterruptHandle`]).
    #[error("interrupted")]
    Interrupted,
    /// The session was closed on this side.
    #[error("the session was closed on this side")]
    Closed,
    /// This machine.
    #[error("this machine refused: {0}")]
    System(Arc<io::Error>),
}

impl Error {
    /// None of `portals` takes a connection.
    #[must_use]
    pub fn unreachable(portals: &[String], reason: String) -> Self {
        Self::unreachable_as(portals, reason, None)
    }

    /// The same, with the number that the system gave for it.
    pub(crate) fn unreachable_as(portals: &[String], reason: String, system: Option<i32>) -> Self {
        Self::new(Kind::Unreachable { portals: portals.join(", "), reason, system })
    }

    pub(crate) fn new(kind: Kind) -> Self {
        let (member, target, lun, command, busy) = (None, None, None, None, None);
        Self(Arc::new(Inner { kind, member, target, lun, command, busy }))
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) -> Self {
        let mut inner = Inner::clone(&self.0);
        change(&mut inner);
        Self(Arc::new(inner))
    }

    pub(crate) fn into_kind(self, kind: Kind) -> Self {
        self.change(|inner| inner.kind = kind)
    }

    pub(crate) fn at_target(&self, target: Option<&str>) -> Self {
        self.change(|inner| inner.target = target.map(str::to_owned))
    }

    pub(crate) fn at_lun(&self, lun: u16) -> Self {
        self.change(|inner| inner.lun = Some(lun))
    }

    /// Of this member of a stripe, counted from zero.
    pub(crate) fn of_member(&self, member: usize) -> Self {
        self.change(|inner| inner.member = Some(member))
    }

    pub(crate) fn during(&self, cdb: &Cdb) -> Self {
        self.change(|inner| inner.command = Some(*cdb))
    }

    pub(crate) fn busy_since(&self, since: Option<Instant>, now: Instant) -> Self {
        let again = [sam::BUSY, sam::TASK_SET_FULL, sam::TASK_ABORTED];
        let is_busy = matches!(&self.0.kind, Kind::Status { status, .. } if again.contains(status));
        self.change(|inner| inner.busy = since.filter(|_| is_busy).map(|since| now.since(since)))
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.0.kind
    }

    /// In which disk of a stripe, counted from zero.
    #[must_use]
    pub fn member(&self) -> Option<usize> {
        self.0.member
    }

    /// The target, if it is known.
    #[must_use]
    pub fn target(&self) -> Option<&str> {
        self.0.target.as_deref()
    }

    /// The logical unit of the command that failed.
    #[must_use]
    pub fn lun(&self) -> Option<u16> {
        self.0.lun
    }

    /// The command that failed.
    #[must_use]
    pub fn command(&self) -> Option<&Cdb> {
        self.0.command.as_ref()
    }

    /// For how long the target has answered BUSY, TASK SET FULL or TASK ABORTED each time that the
    /// command was tried, if that is what went wrong.
    #[must_use]
    pub fn busy_for(&self) -> Option<Duration> {
        self.0.busy
    }

    /// What the unit said.
    #[must_use]
    pub fn sense(&self) -> Option<Sense> {
        match &self.0.kind {
            Kind::Status { sense, .. } => *sense,
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, member, target, lun, command, busy } = &*self.0;
        if let Some(member) = member {
            write!(f, "disk {} of the stripe, ", member + 1)?;
        }
        if let Some(target) = target {
            write!(f, "{}", target.escape_debug())?;
            if let Some(lun) = lun {
                write!(f, ", LUN {lun}")?;
            }
            f.write_str(": ")?;
        }
        if let Some(command) = command {
            write!(f, "{}: ", operation(command))?;
        }
        match busy {
            Some(time) => write!(f, "the target has answered {kind} for {}", seconds(*time)),
            None => write!(f, "{kind}"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::new(Kind::System(Arc::new(error)))
    }
}

fn at_byte(at: Option<u64>) -> String {
    at.map(|at| format!(", first at byte {at}")).unwrap_or_default()
}

/// A time for people: of a longer one nobody wants to know the tenths.
fn seconds(time: Duration) -> String {
    if time >= Duration::from_secs(10) {
        return format!("{:.0} s", time.as_secs_f64());
    }
    match time.subsec_millis() {
        0 => format!("{} s", time.as_secs()),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

/// An answer to a task management function (RFC 7143 §11.6.1).
fn describe_management(response: u8) -> String {
    let reason = match response {
        1 => "the task does not exist",
        2 => "the LUN does not exist",
        3 => "the task is still allegiant to its connection",
        4 => "tasks cannot be reassigned",
        5 => "it does not support the function",
        6 => "this initiator may not do so",
        255 => "it rejects the function",
        _ => return format!("the target refused: response {response} to task management"),
    };
    format!("the target refused: {reason}")
}

/// A status with what its sense data means.
fn describe_status(status: u8, sense: Option<&Sense>) -> String {
    let name = sam::name(status);
    let Some(sense) = sense else {
        return name.map_or_else(|| format!("status {status:#04x}"), str::to_owned);
    };
    let key = asc::key_name(sense.key);
    let codes = format!("{:02X}h/{:02X}h", sense.asc, sense.ascq);
    let mut text = match asc::text(sense.asc, sense.ascq) {
        Some(meaning) => format!("{key}: {meaning} ({codes})"),
        None => format!("{key} ({codes})"),
    };
    if let Some(block) = sense.information {
        text.push_str(&format!(", at block {block}"));
    }
    if sense.deferred {
        text.push_str(", of an earlier command, which had ended well");
    }
    text
}

/// A command for people, for example `READ(16) of 8 blocks at block 0`.
fn operation(cdb: &Cdb) -> String {
    let view = CdbView::new(cdb);
    let opcode = view.opcode();
    let Some(name) = opcode.name() else { return format!("command {:02X}h", opcode.0) };
    let transfers = matches!(
        opcode,
        Opcode::READ_6
            | Opcode::READ_10
            | Opcode::READ_12
            | Opcode::READ_16
            | Opcode::WRITE_6
            | Opcode::WRITE_10
            | Opcode::WRITE_12
            | Opcode::WRITE_16
            | Opcode::WRITE_SAME_10
            | Opcode::WRITE_SAME_16
            | Opcode::VERIFY_10
            | Opcode::VERIFY_16
    );
    match BlockCommand::parse(cdb) {
        Some(block) if transfers && Group::of(opcode).is_some() => {
            format!("{name} of {} blocks at block {}", block.length, block.lba)
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::scsi::SenseKey;

    #[test]
    fn an_error_says_where_and_what_it_means() {
        let command = BlockCommand {
            opcode: Opcode::READ_16,
            lba: 100,
            length: 8,
            flags: 0,
            group_number: 0,
        };
        let cdb = command.emit().expect("it fits");
        let sense = Sense::new(SenseKey::MediumError, 0x11, 0).with_information(103);
        let kind = Kind::Status { status: 2, sense: Some(sense), raw: Vec::new() };
        let error = Error::new(kind).at_target(Some("iqn.a")).at_lun(3).during(&cdb);
        assert_eq!(
            error.to_string(),
            "iqn.a, LUN 3: READ(16) of 8 blocks at block 100: MEDIUM ERROR: unrecovered read error \
             (11h/00h), at block 103"
        );
        // A main that returns it prints it so.
        assert_eq!(format!("{error:?}"), error.to_string());
        assert_eq!(error.sense(), Some(sense));
        let sense = Some(sense.of_an_earlier_command());
        let text = Error::new(Kind::Status { status: 2, sense, raw: Vec::new() }).to_string();
        assert!(
            text.ends_with("at block 103, of an earlier command, which had ended well"),
            "{text}"
        );
        let kind = Kind::Status { status: 0x18, sense: None, raw: Vec::new() };
        assert_eq!(Error::new(kind).to_string(), "RESERVATION CONFLICT");
    }
}
