// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of what the simulator must notice, whose head says how it is written.

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;

use crate::proofs::table;
use crate::proofs::table::Mutant;
use crate::proofs::table::Subject;
use crate::workspace;

const PATH: &str = "crates/sim/mutants.txt";

/// What the sessions go over is drawn.
pub(crate) const ANY: &str = "any";
/// What they can go over.
pub(crate) const OVER: [&str; 4] = [ANY, "iser", "verbs", "ether"];

/// A mutant, and how the simulator finds it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) mutant: Mutant,
    /// The class of faults that shows it.
    pub(crate) class: String,
    /// Where the search begins.
    pub(crate) first_seed: u64,
    /// Of [`OVER`], each a trial of its own.
    pub(crate) over: Vec<String>,
}

/// All of the table.
pub(crate) fn read() -> Result<Vec<Entry>> {
    parse(&workspace::read(PATH).context(PATH)?)
}

pub(crate) fn parse(text: &str) -> Result<Vec<Entry>> {
    let mut entries = Vec::<Entry>::new();
    for (line, block) in table::blocks(text) {
        let at = format!("{PATH}:{line}");
        let entry = entry(&at, &block).context(at)?;
        let (name, number) = (&entry.mutant.name, entry.mutant.number);
        if let Some(other) =
            entries.iter().find(|other| other.mutant.name == *name || other.mutant.number == number)
        {
            bail!("{}: has the name or the number of {}", entry.mutant.at, other.mutant.at);
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn entry(at: &str, block: &[&str]) -> Result<Entry> {
    let (head, lines) = block.split_first().context("an empty block")?;
    let words: Vec<&str> = head.split_whitespace().collect();
    let (name, class, over, file, function) = match words.as_slice() {
        [name, class, over, file] => (*name, *class, *over, *file, None),
        [name, class, over, file, "fn", function] => {
            (*name, *class, *over, *file, Some((*function).to_owned()))
        }
        _ => bail!("wanted `NAME CLASS OVER FILE` or `NAME CLASS OVER FILE fn NAME`"),
    };
    let (class, first_seed) = match class.split_once(':') {
        Some((class, seed)) => (class, seed.parse().context("the first seed is a number")?),
        None => (class, 1),
    };
    let over: Vec<String> = over.split(',').map(str::to_owned).collect();
    if let Some(unknown) = over.iter().find(|over| !OVER.contains(&over.as_str())) {
        bail!("{unknown} is none of {}", OVER.join(", "));
    }
    let mutant = Mutant {
        subject: Subject::System,
        name: name.to_owned(),
        at: at.to_owned(),
        number: table::number_of(block),
        file: file.to_owned(),
        function,
        changes: table::changes(lines)?,
    };
    Ok(Entry { mutant, class: class.to_owned(), first_seed, over })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_says_how_it_is_noticed() {
        let text = "# Head.\n\na calm:17 any,iser a.rs fn f\n- a\n+ b\n\nb liar verbs a.rs\n- c\n";
        let entries = parse(text).unwrap();
        let [first, second] = entries.as_slice() else { panic!("{entries:?}") };
        assert_eq!((first.class.as_str(), first.first_seed), ("calm", 17));
        assert_eq!(first.over, [ANY, "iser"]);
        assert_eq!(first.mutant.function.as_deref(), Some("f"));
        assert_eq!((second.class.as_str(), second.first_seed), ("liar", 1));
        assert_eq!(second.mutant.at, format!("{PATH}:7"));
    }

    #[test]
    fn what_is_no_block_is_told() {
        let block = "a calm any a.rs\n- a\n+ b\n";
        assert!(parse(block).is_ok());
        for text in [
            "a calm a.rs\n- a\n+ b\n",
            "a calm:x any a.rs\n- a\n+ b\n",
            "a calm tcp a.rs\n- a\n+ b\n",
            "a calm any a.rs\n+ b\n",
            "a calm any a.rs\n- a\n+ a\n",
            &format!("{block}\na calm any a.rs\n- c\n"),
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
