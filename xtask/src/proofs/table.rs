// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The mutants of `conformance/mutants/FAMILY.txt` and the rows of `conformance/named.txt` that
//! none can stand for.
//!
//! A block for each mutant, parted by empty lines; `#` begins a comment line:
//!
//! ```text
//! KEY-31/I crates/iscsi/src/initiator/login/offer.rs fn offers
//! - let r2ts = if level == 0 { 8 } else { 1 };
//! + let r2ts = 8;
//! ```
//!
//! What the lines with `-` say stands once in the file, or in the function; indentation does not
//! count. One line may be a part of a line. Further `-` after `+` are another place of the file.

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;

use crate::catalogue::Part;
use crate::catalogue::Row;
use crate::covers;
use crate::scsi;
use crate::workspace::File;

/// The folder of the mutants.
pub(crate) const FOLDER: &str = "conformance/mutants/";
/// The rows without one.
pub(crate) const NAMED: &str = "conformance/named.txt";

/// What a mutant breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A requirement, and whose part of it; none where only one role has it.
    Row(String, Option<Part>),
    /// A SCSI command, as [`scsi`] names it: `A3/0C`, `CD/DVD 46`.
    Command(String),
    /// The whole, as only the simulator sees it.
    System,
}

impl Subject {
    /// `KEY-31`, `KEY-31/I`; `SCSI-A3/0C` of a disk and `MMC-46` of a drive.
    fn parse(word: &str) -> Option<Self> {
        if let Some(code) = word.strip_prefix("SCSI-") {
            return scsi::is_code(code).then(|| Self::Command(scsi::key(false, code)));
        }
        if let Some(code) = word.strip_prefix("MMC-") {
            return scsi::is_code(code).then(|| Self::Command(scsi::key(true, code)));
        }
        covers::id_and_part(word).map(|(id, part)| Self::Row(id, part))
    }
}

/// A fault, and where it is made.
#[derive(Clone, Debug)]
pub(crate) struct Mutant {
    /// What it breaks.
    pub(crate) subject: Subject,
    /// `KEY-31/I`; with ` (2)` where it is the second one.
    pub(crate) name: String,
    /// `conformance/mutants/KEY.txt:12`.
    pub(crate) at: String,
    /// By which the tests are told to run it: it follows from the block, so a new block changes no
    /// other.
    pub(crate) number: u32,
    /// Which file is broken.
    pub(crate) file: String,
    /// Within which function the text stands once.
    pub(crate) function: Option<String>,
    /// What is there, and what stands there instead.
    pub(crate) changes: Vec<Change>,
}

/// Lines without their indentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) from: Vec<String>,
    pub(crate) to: Vec<String>,
}

/// A row that no mutant can stand for.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) id: String,
    /// None where only one role has the row.
    pub(crate) part: Option<Part>,
    pub(crate) reason: String,
}

impl Mutant {
    /// Whether it breaks the same rule by the same fault, however it is written.
    fn does_as(&self, other: &Self) -> bool {
        self.subject == other.subject
            && self.file == other.file
            && self.changes == other.changes
            && self.function == other.function
    }

    /// By what the mutants of a file are sorted.
    fn place(&self) -> &str {
        match &self.subject {
            Subject::Row(id, _) => id,
            Subject::Command(_) | Subject::System => &self.name,
        }
    }
}

impl Named {
    /// Whether it is this row that has none, in this role.
    pub(crate) fn holds_for(&self, row: &Row, role: Part) -> bool {
        row.id == self.id && row.is_of(role) && self.part.is_none_or(|part| part.is_of(role))
    }
}

/// All mutants of these files, and what is wrong with the blocks that are none.
pub(crate) fn mutants(files: &[File]) -> (Vec<Mutant>, Vec<String>) {
    let (mut all, mut problems) = (Vec::<Mutant>::new(), Vec::new());
    for file in files {
        let Some(family) = family_of(&file.path) else { continue };
        let first = all.len();
        for (line, block) in blocks(&file.text) {
            let at = format!("{}:{line}", file.path);
            match parse(&at, family, &block) {
                Ok(mutant) => all.push(mutant),
                Err(error) => problems.push(format!("{at}: {error:#}")),
            }
        }
        let of_file = all.get(first..).unwrap_or_default();
        let mut pairs = of_file.windows(2);
        if let Some([_, late]) = pairs.find(|pair| matches!(pair, [a, b] if a.place() > b.place()))
        {
            problems.push(format!("{}: {} is not in order", late.at, late.name));
        }
    }
    number_names(&mut all);
    for (index, one) in all.iter().enumerate() {
        let before = all.get(..index).unwrap_or_default();
        if let Some(other) = before.iter().find(|other| other.does_as(one)) {
            problems.push(format!("{}: is that of {} once more", one.at, other.at));
        }
    }
    let mut numbers: Vec<(u32, &Mutant)> = all.iter().map(|one| (one.number, one)).collect();
    numbers.sort_by_key(|(number, _)| *number);
    for pair in numbers.windows(2) {
        if let [(a, one), (b, other)] = pair
            && a == b
            && !one.does_as(other)
        {
            problems.push(format!("{}: has the number of {}: word it otherwise", other.at, one.at));
        }
    }
    (all, problems)
}

/// `KEY` of `conformance/mutants/KEY.txt`.
fn family_of(path: &str) -> Option<&str> {
    path.strip_prefix(FOLDER)?.strip_suffix(".txt")
}

/// Each block with the number of its first line.
pub(crate) fn blocks(text: &str) -> Vec<(usize, Vec<&str>)> {
    let mut blocks: Vec<(usize, Vec<&str>)> = Vec::new();
    let mut is_open = false;
    for (line, number) in text.lines().zip(1..) {
        if line.trim().is_empty() {
            is_open = false;
        } else if !line.starts_with('#') {
            match blocks.last_mut().filter(|_| is_open) {
                Some((_, block)) => block.push(line),
                None => blocks.push((number, vec![line])),
            }
            is_open = true;
        }
    }
    blocks
}

fn parse(at: &str, family: &str, block: &[&str]) -> Result<Mutant> {
    let (head, lines) = block.split_first().context("an empty block")?;
    let words: Vec<&str> = head.split_whitespace().collect();
    let (name, file, function) = match words.as_slice() {
        [name, file] => (*name, *file, None),
        [name, file, "fn", function] => (*name, *file, Some((*function).to_owned())),
        _ => bail!("wanted `ID/ROLE FILE` or `ID/ROLE FILE fn NAME`"),
    };
    let subject = Subject::parse(name).with_context(|| format!("{name} is no id"))?;
    let of_file = match family {
        "SCSI" => name.starts_with("SCSI-") || name.starts_with("MMC-"),
        family => name.strip_prefix(family).is_some_and(|rest| rest.starts_with('-')),
    };
    if !of_file {
        bail!("{name} belongs to another file");
    }
    Ok(Mutant {
        subject,
        name: name.to_owned(),
        at: at.to_owned(),
        number: number_of(block),
        file: file.to_owned(),
        function,
        changes: changes(lines)?,
    })
}

/// What the lines with `-` and `+` say.
pub(crate) fn changes(lines: &[&str]) -> Result<Vec<Change>> {
    let mut changes: Vec<Change> = Vec::new();
    for line in lines {
        let Some(text) = line.get(1..).map(|text| text.trim().to_owned()) else {
            bail!("wanted lines with - and +");
        };
        match (line.chars().next(), changes.last_mut()) {
            (Some('-'), Some(change)) if change.to.is_empty() => change.from.push(text),
            (Some('-'), _) => changes.push(Change { from: vec![text], to: Vec::new() }),
            (Some('+'), Some(change)) => change.to.push(text),
            _ => bail!("wanted lines with -, then lines with +: {line}"),
        }
    }
    if changes.is_empty() {
        bail!("changes nothing");
    }
    for change in &changes {
        if change.from == change.to {
            bail!("puts there what is there");
        }
        if change.from.iter().all(String::is_empty) {
            bail!("says not what is there");
        }
        let (from, to) = (without_blanks(&change.from), without_blanks(&change.to));
        let ends = ENDS.iter().find(|end| to.matches(**end).count() > from.matches(**end).count());
        if let Some(end) = ends {
            bail!("whoever comes there is ended by {end}, whatever the rule is");
        }
    }
    Ok(changes)
}

fn without_blanks(lines: &[String]) -> String {
    lines.iter().flat_map(|line| line.split_whitespace()).collect()
}

/// What every test notices that comes there, and breaks no rule, without its blanks.
const ENDS: [&str; 9] = [
    "panic!",
    "todo!",
    "unimplemented!",
    "unreachable!",
    "assert",
    "abort(",
    "exit(",
    "loop{}",
    "whiletrue{}",
];

/// 0 is the whole product.
pub(crate) fn number_of(block: &[&str]) -> u32 {
    hash(block.iter().copied()).max(1)
}

/// FNV-1a of words.
pub(crate) fn hash<'a>(words: impl IntoIterator<Item = &'a str>) -> u32 {
    let bytes = words.into_iter().flat_map(|word| word.bytes().chain([b'\n']));
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    bytes.fold(0x811c_9dc5, step)
}

/// The second mutant of a row is told from the first.
fn number_names(all: &mut [Mutant]) {
    let names: Vec<String> = all.iter().map(|mutant| mutant.name.clone()).collect();
    for (index, mutant) in all.iter_mut().enumerate() {
        let before = names.iter().take(index).filter(|name| **name == mutant.name).count();
        if before > 0 {
            mutant.name = format!("{} ({})", mutant.name, before + 1);
        }
    }
}

/// Reads the rows without mutants: id, tab, reason; `#` begins a comment line.
pub(crate) fn named(text: &str) -> Result<Vec<Named>> {
    let mut list: Vec<Named> = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let entry = line.split_once('\t').and_then(|(name, reason)| {
            let (id, part) = covers::id_and_part(name)?;
            let reason = reason.trim().to_owned();
            (!reason.is_empty()).then_some(Named { id, part, reason })
        });
        let Some(entry) = entry else {
            bail!("{NAMED}, line {number}: wanted ID or ID/ROLE, a tab and a reason");
        };
        if list.iter().any(|one| one.id == entry.id && one.part == entry.part) {
            bail!("{NAMED}, line {number}: {} for the second time", entry.id);
        }
        list.push(entry);
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str, text: &str) -> (Vec<Mutant>, Vec<String>) {
        mutants(&[File { path: path.to_owned(), text: text.to_owned() }])
    }

    const TWO: &str = "# Keys.\n\nKEY-30 crates/a/src/b.rs\n- a;\n\n# The other one.\n\
                       KEY-31/I crates/a/src/c.rs fn f\n-     x {\n-     y\n+ z {\n";

    #[test]
    fn blocks_are_mutants() {
        let (all, problems) = read("conformance/mutants/KEY.txt", TWO);
        assert_eq!(problems, [""; 0]);
        let [first, second] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!(first.subject, Subject::Row("KEY-30".to_owned(), None));
        assert_eq!(first.at, "conformance/mutants/KEY.txt:3");
        assert_eq!(first.file, "crates/a/src/b.rs");
        assert!(first.changes[0].to.is_empty());
        assert_eq!(second.subject, Subject::Row("KEY-31".to_owned(), Some(Part::Initiator)));
        assert_eq!(second.function.as_deref(), Some("f"));
        assert_eq!(second.changes[0].from, ["x {", "y"]);
        assert_eq!(second.changes[0].to, ["z {"]);
        assert_ne!(first.number, second.number);
    }

    #[test]
    fn a_row_may_have_several_and_a_mutant_several_places() {
        let text = "KEY-01 a.rs\n- a\n+ b\n- c\n+ d\n\nKEY-01 a.rs\n- e\n";
        let (all, problems) = read("conformance/mutants/KEY.txt", text);
        assert_eq!(problems, [""; 0]);
        assert_eq!(all[0].changes.len(), 2);
        assert_eq!(all[1].name, "KEY-01 (2)");
    }

    #[test]
    fn commands_are_named_by_their_code() {
        let text = "MMC-46 a.rs\n- a\n\nSCSI-A3/0C b.rs\n- a\n";
        let (all, problems) = read("conformance/mutants/SCSI.txt", text);
        let codes: Vec<_> = all.into_iter().map(|mutant| mutant.subject).collect();
        assert_eq!(problems, [""; 0]);
        assert_eq!(codes[0], Subject::Command("CD/DVD 46".to_owned()));
        assert_eq!(codes[1], Subject::Command("A3/0C".to_owned()));
    }

    #[test]
    fn what_is_no_mutant_is_told() {
        for text in [
            "KEY-01\n- a\n",
            "KEY-1x2 a.rs\n- a\n",
            "KEY-01/X a.rs\n- a\n",
            "NEG-01 a.rs\n- a\n",
            "KEY-01 a.rs\n",
            "KEY-01 a.rs\n+ a\n",
            "KEY-01 a.rs\n- a\n+ a\n",
            "KEY-01 a.rs\n-\n+ a\n",
            "KEY-01 a.rs\nelse\n",
            "KEY-01 a.rs\n- a\n+ panic!(\"b\")\n",
            "KEY-01 a.rs\n- a\n+ assert_eq!(a, 1);\n+ a\n",
            "KEY-01 a.rs\n- a\n+ loop {}\n",
            "KEY-01 a.rs\n- a\n+ loop {\n+ }\n",
            "KEY-02 a.rs\n- a\n\nKEY-01 a.rs\n- a\n",
            "KEY-01 a.rs\n- a\n\nKEY-01 a.rs\n- a\n",
        ] {
            assert_eq!(read("conformance/mutants/KEY.txt", text).1.len(), 1, "{text}");
        }
        assert_eq!(read("docs/KEY.txt", "KEY-01\n").1, [""; 0]);
        // What ended the program before may go on doing so.
        let text = "KEY-01 a.rs\n- assert!(a); b\n+ assert!(a); c\n";
        assert_eq!(read("conformance/mutants/KEY.txt", text).1, [""; 0]);
    }

    #[test]
    fn rows_without_mutants_have_a_reason() {
        let list = named("# why\nKEY-01\tforbids what no code does\nKEY-02/I\tx\n").unwrap();
        assert_eq!((list[0].part, list[1].part), (None, Some(Part::Initiator)));
        assert!(named("KEY-01\n").is_err());
        assert!(named("KEY-01\t \n").is_err());
        assert!(named("KEY-01\ta\nKEY-01\tb\n").is_err());
    }
}
