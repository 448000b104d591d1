// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a unit says of itself, and whether two that say so are one.
//!
//! Names of the world (SPC-4 §7.8.5: NAA but 3h, EUI-64, SCSI names) decide alone. Other names and
//! serial numbers are given by whoever likes, and some targets make them of the place of a unit: so
//! without a name of the world all that both say must agree. What has neither names nor a serial
//! number is compared by its make and size. One that has begun anew, and tells so
//! ([`Designator::Content`]), is another one whatever its names, and so is one whose blocks have
//! another length: each block would be another one.

use std::fmt;

use wire::iscsi::Cdb;
use wire::scsi::Sense;
use wire::scsi::SenseKey;
use wire::scsi::capacity::Capacity;
use wire::scsi::command;
use wire::scsi::inquiry::Standard;
use wire::scsi::opcode;
use wire::scsi::opcode::Opcode;
use wire::scsi::sam::CHECK_CONDITION;
use wire::scsi::vpd;
use wire::scsi::vpd::Association;
use wire::scsi::vpd::Designator;

use crate::Kind;
use crate::limits;

/// What units are asked that tells one from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link) enum Question {
    Make,
    /// Which pages there are: never asked again.
    Pages,
    Names,
    Serial,
    Size16,
    Size10,
}

impl Question {
    const ALL: [Self; 6] =
        [Self::Make, Self::Pages, Self::Names, Self::Serial, Self::Size16, Self::Size10];

    /// Which one a command is.
    pub(super) fn of(cdb: &Cdb) -> Option<Self> {
        let [code, second, page, ..] = cdb.bytes;
        Some(match (Opcode(code), second) {
            (Opcode::INQUIRY, 0) => Self::Make,
            (Opcode::INQUIRY, 1) if page == vpd::SUPPORTED_PAGES => Self::Pages,
            (Opcode::INQUIRY, 1) if page == vpd::DEVICE_IDENTIFICATION => Self::Names,
            (Opcode::INQUIRY, 1) if page == vpd::UNIT_SERIAL_NUMBER => Self::Serial,
            (Opcode::SERVICE_ACTION_IN_16, action)
                if u16::from(action & 0x1f) == opcode::READ_CAPACITY_16 =>
            {
                Self::Size16
            }
            (Opcode::READ_CAPACITY_10, _) => Self::Size10,
            _ => return None,
        })
    }

    pub(super) fn cdb(self) -> Cdb {
        let room = u16::try_from(limits::IDENTITY_BYTES).unwrap_or(u16::MAX);
        match self {
            Self::Make => command::inquiry(None, 255),
            Self::Pages => command::inquiry(Some(vpd::SUPPORTED_PAGES), room),
            Self::Names => command::inquiry(Some(vpd::DEVICE_IDENTIFICATION), room),
            Self::Serial => command::inquiry(Some(vpd::UNIT_SERIAL_NUMBER), room),
            Self::Size16 => command::read_capacity_16(32),
            Self::Size10 => command::plain(Opcode::READ_CAPACITY_10),
        }
    }

    const fn is_inquiry(self) -> bool {
        matches!(self, Self::Make | Self::Pages | Self::Names | Self::Serial)
    }

    pub(super) const fn is_size(self) -> bool {
        matches!(self, Self::Size16 | Self::Size10)
    }

    /// Whether the answer says that there is no unit now (SPC-4 §6.6.2, PERIPHERAL QUALIFIER).
    pub(super) fn is_absent(self, data: &[u8]) -> bool {
        self.is_inquiry() && data.first().is_some_and(|peripheral| peripheral >> 5 != 0)
    }
}

/// What a unit says, as far as it was asked; empty where it has nothing to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// Device type, vendor and product; no revision, which changes with the software of a target.
    make: Option<(u8, [u8; 8], [u8; 16])>,
    pages: Option<Vec<u8>>,
    /// Those of the unit itself, not of ports, and of what it holds.
    names: Option<Vec<Designator>>,
    serial: Option<Vec<u8>>,
    /// Blocks, and bytes in each, as either READ CAPACITY says.
    size16: Option<(u64, u32)>,
    size10: Option<(u64, u32)>,
}

impl Facts {
    /// Takes an answer, or that there is none.
    pub(super) fn hear(&mut self, question: Question, data: Option<&[u8]>) {
        match data {
            Some(data) => self.take(question, data),
            None => self.refuse(question),
        }
    }

    /// Takes an answer; one that is cut or makes no sense says nothing.
    fn take(&mut self, question: Question, data: &[u8]) {
        if question.is_absent(data) {
            return;
        }
        match question {
            Question::Make => {
                let make =
                    |standard: Standard| (standard.peripheral, standard.vendor, standard.product);
                self.make = Standard::parse(data).map(make);
            }
            Question::Pages => {
                self.pages = whole(data, vpd::SUPPORTED_PAGES).map(<[u8]>::to_vec);
            }
            Question::Names => {
                let names = whole(data, vpd::DEVICE_IDENTIFICATION).map(vpd::designators);
                let of_unit = |name: &Designator| match name {
                    Designator::Naa(_)
                    | Designator::Eui(_)
                    | Designator::T10Vendor(_)
                    | Designator::Content(_) => true,
                    Designator::ScsiName { of, .. } => *of == Association::LogicalUnit,
                    _ => false,
                };
                self.names = names.map(|all| all.into_iter().filter(of_unit).collect());
            }
            Question::Serial => {
                let serial = whole(data, vpd::UNIT_SERIAL_NUMBER).map(<[u8]>::trim_ascii);
                self.serial = serial.map(<[u8]>::to_vec);
            }
            Question::Size16 => {
                let size = |capacity: Capacity| (capacity.last_lba, capacity.block_length);
                self.size16 = Capacity::parse_16(data).map(size);
            }
            Question::Size10 => {
                let size = |(last, block): (u32, u32)| (u64::from(last), block);
                self.size10 = Capacity::parse_10(data).map(size);
            }
        }
    }

    /// It does not have what it was asked for.
    fn refuse(&mut self, question: Question) {
        match question {
            Question::Pages => self.pages = Some(Vec::new()),
            Question::Names => self.names = Some(Vec::new()),
            Question::Serial => self.serial = Some(Vec::new()),
            Question::Make | Question::Size16 | Question::Size10 => {}
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What a caller has been told last is what he goes by.
    pub(super) const fn resize(&mut self, said: &Self) {
        if said.size16.is_some() {
            self.size16 = said.size16;
        }
        if said.size10.is_some() {
            self.size10 = said.size10;
        }
    }

    pub(super) const fn has(&self, question: Question) -> bool {
        match question {
            Question::Make => self.make.is_some(),
            Question::Pages => self.pages.is_some(),
            Question::Names => self.names.is_some(),
            Question::Serial => self.serial.is_some(),
            Question::Size16 => self.size16.is_some(),
            Question::Size10 => self.size10.is_some(),
        }
    }

    /// Takes what `other` has besides.
    pub(super) fn add(&mut self, other: Self) {
        self.make = self.make.or(other.make);
        self.pages = self.pages.take().or(other.pages);
        self.names = self.names.take().or(other.names);
        self.serial = self.serial.take().or(other.serial);
        self.size16 = self.size16.or(other.size16);
        self.size10 = self.size10.or(other.size10);
    }

    /// What is to be asked again.
    pub(super) fn questions(&self) -> impl Iterator<Item = Question> {
        Question::ALL.into_iter().filter(move |question| match question {
            Question::Pages => false,
            Question::Size10 => self.size10.is_some() && self.size16.is_none(),
            _ => self.has(*question),
        })
    }

    /// Bytes in each block.
    fn block(&self) -> Option<u32> {
        self.size16.or(self.size10).map(|(_, block)| block)
    }

    /// Whether it certainly has neither names nor a serial number.
    pub(super) fn is_nameless(&self) -> bool {
        let pages = self.pages.as_deref();
        let lacks = |page| pages.is_some_and(|pages| !pages.contains(&page));
        self.make.is_some()
            && self.names.as_ref().map_or_else(|| lacks(vpd::DEVICE_IDENTIFICATION), Vec::is_empty)
            && self.serial.as_ref().map_or_else(|| lacks(vpd::UNIT_SERIAL_NUMBER), Vec::is_empty)
    }

    /// Whether `said`, the answer to `question`, is not what is known.
    pub(super) fn differs(&self, said: &Self, question: Question) -> bool {
        let mut compared = self.questions();
        compared.any(|asked| asked == question)
            && match question {
                Question::Make => self.make != said.make,
                Question::Pages => false,
                Question::Names => self.names != said.names,
                Question::Serial => self.serial != said.serial,
                // The size of what has a name may change.
                Question::Size16 => self.is_nameless() && self.size16 != said.size16,
                Question::Size10 => self.is_nameless() && self.size10 != said.size10,
            }
    }

    /// Whether a unit that says `now` is the one that said this. Both were asked the same.
    pub(super) fn is_of(&self, now: &Self) -> bool {
        if self.content() != now.content() || self.has_other_blocks(now) {
            return false;
        }
        let (was_named, is_named) = (self.worldwide(), now.worldwide());
        if !was_named.is_empty() || !is_named.is_empty() {
            return was_named.iter().any(|name| is_named.contains(name));
        }
        let shares = |was: &Vec<Designator>, now: &Vec<Designator>| {
            was.iter().any(|name| now.contains(name))
        };
        let names = match (&self.names, &now.names) {
            (Some(was), Some(now)) if !was.is_empty() || !now.is_empty() => shares(was, now),
            _ => true,
        };
        let mut others = self.questions().filter(|question| *question != Question::Names);
        names && others.all(|question| !self.differs(now, question))
    }

    fn has_other_blocks(&self, other: &Self) -> bool {
        self.block().zip(other.block()).is_some_and(|(one, other)| one != other)
    }

    /// For people, who see what makes another unit of it than `other`.
    pub(super) fn beside(&self, other: &Self) -> String {
        match self.block() {
            Some(block) if self.has_other_blocks(other) && !self.is_nameless() => {
                format!("{self} with blocks of {block} bytes")
            }
            _ => self.to_string(),
        }
    }

    /// What it holds, if it says so.
    fn content(&self) -> Option<u64> {
        self.names.iter().flatten().find_map(|name| match name {
            Designator::Content(number) => Some(*number),
            _ => None,
        })
    }

    /// Names that no other unit in the world has.
    fn worldwide(&self) -> Vec<&Designator> {
        let is_worldwide = |name: &&Designator| match name {
            Designator::Naa(value) => vpd::is_world_wide(value),
            Designator::Eui(_) | Designator::ScsiName { .. } => true,
            _ => false,
        };
        self.names.iter().flatten().filter(is_worldwide).collect()
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_name(f)?;
        match self.content() {
            Some(number) => write!(f, " with content {number:016x}"),
            None => Ok(()),
        }
    }
}

impl Facts {
    fn fmt_name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let text = |bytes: &[u8]| bytes.trim_ascii().escape_ascii().to_string();
        let worldwide = self.worldwide();
        let mut names = worldwide.into_iter().chain(self.names.iter().flatten());
        if let Some(name) = names.next() {
            return match name {
                Designator::Naa(value) => write!(f, "naa.{}", hex(value)),
                Designator::Eui(value) => write!(f, "eui.{}", hex(value)),
                Designator::ScsiName { name, .. } => f.write_str(&text(name)),
                Designator::T10Vendor(name) => write!(
                    f,
                    "{}, serial number {}",
                    text(name),
                    self.serial.as_deref().map_or_else(|| "none".into(), text)
                ),
                _ => f.write_str("a disk"),
            };
        }
        if let Some(serial) = self.serial.as_ref().filter(|serial| !serial.is_empty()) {
            return write!(f, "serial number {}", text(serial));
        }
        match &self.make {
            Some((_, vendor, product)) => write!(f, "{} {}", text(vendor), text(product))?,
            None => f.write_str("a disk without a name")?,
        }
        match self.size16.or(self.size10) {
            Some((last, block)) => {
                write!(f, " of {} blocks of {block} bytes", last.saturating_add(1))
            }
            None => Ok(()),
        }
    }
}

/// The content of a page, if all of it is there.
fn whole(data: &[u8], page: u8) -> Option<&[u8]> {
    let content = vpd::content(data, page)?;
    let announced = data.get(2..4)?.try_into().map(u16::from_be_bytes).ok()?;
    (content.len() == usize::from(announced)).then_some(content)
}

/// Whether a unit does not have what it was asked for.
pub(super) fn is_unsupported(kind: &Kind) -> bool {
    matches!(kind, Kind::Status { sense: Some(sense), .. }
        if sense.key == SenseKey::IllegalRequest && matches!(sense.asc, 0x20 | 0x24))
}

/// What a command meets where there is no unit (SPC-4 §F.2): LOGICAL UNIT NOT SUPPORTED.
pub(super) fn not_supported() -> Kind {
    let sense = Sense::new(SenseKey::IllegalRequest, 0x25, 0);
    Kind::Status { status: CHECK_CONDITION, sense: Some(sense), raw: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[Designator]) -> Facts {
        Facts { names: Some(list.to_vec()), ..Facts::default() }
    }

    fn naa(bytes: [u8; 8]) -> Designator {
        Designator::Naa(bytes.to_vec())
    }

    #[test]
    fn a_name_of_the_world_decides() {
        let a = || names(&[naa([0x60, 1, 2, 3, 4, 5, 6, 7])]);
        let b = || names(&[naa([0x60, 1, 2, 3, 4, 5, 6, 8])]);
        let more = [naa([0x60, 1, 2, 3, 4, 5, 6, 7]), Designator::Eui(vec![1; 8])];
        assert!(a().is_of(&names(&more)), "one more name");
        assert!(!a().is_of(&b()));
        assert!(!a().is_of(&Facts::default()), "it has none any more");
        let serial =
            |facts: Facts, text: &str| Facts { serial: Some(text.as_bytes().to_vec()), ..facts };
        assert!(serial(a(), "1").is_of(&serial(a(), "2")));
        assert!(!serial(a(), "1").is_of(&serial(b(), "1")));
    }

    #[test]
    fn what_has_begun_anew_is_another_one_by_any_name() {
        for name in [naa([0x60, 1, 2, 3, 4, 5, 6, 7]), naa([0x30, 0, 0, 0, 0, 0, 0, 1])] {
            let with = |number| names(&[name.clone(), Designator::Content(number)]);
            assert!(with(7).is_of(&with(7)));
            assert!(!with(7).is_of(&with(8)));
            let bare = || names(std::slice::from_ref(&name));
            assert!(!with(7).is_of(&bare()) && !bare().is_of(&with(7)));
            let (was, now) = (with(7).to_string(), with(8).to_string());
            assert!(was != now && was.contains("content"), "{was}");
        }
    }

    #[test]
    fn without_one_all_must_agree() {
        let of_tgtd = names(&[naa([0x60, 0, 0, 0, 0, 0, 0, 1])]);
        let counted = |text: &str| Facts { serial: Some(text.into()), ..of_tgtd.clone() };
        assert!(!counted("a").is_of(&counted("b")), "a name without a company");
        let local = || names(&[naa([0x30, 0, 0, 0, 0, 0, 0, 1])]);
        let serial = |text: &str| Facts { serial: Some(text.into()), ..local() };
        assert!(serial("a").is_of(&serial("a")));
        assert!(!serial("a").is_of(&serial("b")), "a name that says the place");
        assert!(!serial("a").is_of(&local()));
        let sized = |last| Facts {
            make: Some((0, *b"ACME    ", *b"disk            ")),
            pages: Some(Vec::new()),
            size16: Some((last, 512)),
            ..Facts::default()
        };
        assert!(sized(99).is_of(&sized(99)));
        assert!(!sized(99).is_of(&sized(100)));
        let unasked = |last| Facts { pages: None, ..sized(last) };
        assert!(unasked(99).is_of(&unasked(100)), "it may have a name");
        let grown = |last| Facts { size16: Some((last, 512)), ..serial("a") };
        assert!(grown(99).is_of(&grown(100)), "what has a serial number may grow");
    }

    #[test]
    fn other_blocks_are_another_disk_whatever_its_name() {
        let of = |block| Facts {
            size16: Some((99, block)),
            ..names(&[naa([0x60, 1, 2, 3, 4, 5, 6, 7])])
        };
        assert!(of(512).is_of(&of(512)) && !of(512).is_of(&of(4096)));
        assert!(of(512).is_of(&Facts { size16: None, ..of(512) }), "it does not tell");
        assert_eq!(of(512).beside(&of(4096)), "naa.6001020304050607 with blocks of 512 bytes");
        assert_eq!(of(512).beside(&of(512)), "naa.6001020304050607");
        assert!(!of(512).differs(&of(4096), Question::Size16), "its caller has heard it");
    }

    #[test]
    fn answers_that_are_cut_say_nothing() {
        let mut page = vpd::page(0, vpd::UNIT_SERIAL_NUMBER, b"serial  ");
        let mut facts = Facts::default();
        facts.take(Question::Serial, &page[..8]);
        assert!(facts.is_empty());
        facts.take(Question::Serial, &page);
        assert_eq!(facts.to_string(), "serial number serial");
        page[0] = 0x7f;
        assert!(Question::Serial.is_absent(&page));
        for cdb in Question::ALL.map(Question::cdb) {
            let question = Question::of(&cdb).expect("it is one of ours");
            assert_eq!(question.cdb(), cdb);
        }
    }
}
