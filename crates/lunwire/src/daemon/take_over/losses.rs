// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was lost as disks were closed, of which the next process would not hear.
//!
//! Linux tells an error of writing back once to each open file, and to one that is opened later
//! only if nobody has heard of it by then (errseq). Whoever opens a file here syncs it first, and
//! so hears of that. But the last sync of the process that is to end may have heard of it: then the
//! next one is told that all is well. The file was open here all the time, so that sync hears of
//! every failure until then, whoever else has; and behind a good one nothing that hosts wrote is
//! left to be written back. So there is no third case: what the last sync has heard of, and what is
//! no file says as it is closed, is all that hosts could miss. Disks stay where they were then, and
//! their flushes fail as if they had not been closed.

use target::Error;
use target::Node;
use target::OpError;
use target::Target;

/// A disk that has lost something: target and number.
pub(crate) type Loss = (String, u16);

/// The disks of `target` that have lost something, which has `stopped`.
pub(crate) fn of(target: &Target, stopped: &Result<(), Error>) -> Vec<Loss> {
    let mut losses: Vec<Loss> = Vec::new();
    for one in target.targets() {
        let lost = one.luns.iter().filter(|lun| lun.lost_writes);
        losses.extend(lost.map(|lun| (one.name.clone(), lun.number)));
    }
    if let Err(Error::Finish { target, lun, source }) = stopped {
        let loss = (target.clone(), *lun);
        if *source != OpError::Silent && !losses.contains(&loss) {
            losses.push(loss);
        }
    }
    losses
}

/// Why disks with these `losses` are not handed over.
pub(crate) fn why_kept(losses: &[Loss]) -> Option<String> {
    let (target, lun) = losses.first()?;
    Some(format!(
        "LUN {lun} of {target}: the system has lost writes to it as it was closed, and hosts would \
         not hear of that; their flushes fail from now on; try: check the disk and the data, then \
         restart the daemon"
    ))
}

/// Disks that are opened again have lost what they had lost before.
pub(crate) fn keep(nodes: &[Node], losses: &[Loss]) {
    for node in nodes {
        for (number, unit) in &node.luns {
            if losses.iter().any(|(target, lun)| (target, lun) == (&node.name, number)) {
                unit.store().lose_unknown();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;
    use crate::args::ServeOptions;
    use crate::plan::Draft;

    const NAME: &str = "iqn.2026-01.com.example:a";

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: ServeOptions,
    }

    #[test]
    fn what_is_lost_is_known_when_disks_are_opened_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let lun = |name: &str| format!("file:{},size=1M", folder.path().join(name).display());
        let (one, other) = (lun("one"), lun("other"));
        let line = ["lunwire", "--listen", "127.0.0.1:0", "--target", NAME, "--lun", &one];
        let options = Line::parse_from(line.iter().copied().chain(["--lun", &*other])).options;
        let draft = Draft::from_options(&options).expect("options");
        let served = |losses: &[Loss]| {
            let plan = draft.open(&[]).expect("disks").plan;
            keep(&plan.nodes, losses);
            Target::start(plan).expect("a port")
        };
        let target = served(&[]);
        let (_, unit) = target.units(NAME).expect("served").swap_remove(1);
        assert_eq!(of(&target, &Ok(())), []);
        // The last sync fails.
        unit.store().lose_unknown();
        let stopped = target.stop(Duration::ZERO);
        assert!(matches!(stopped, Err(Error::Flush { .. })), "{stopped:?}");
        let lost = of(&target, &stopped);
        assert_eq!(lost, [(NAME.to_owned(), 1)]);
        assert!(why_kept(&lost).is_some_and(|why| why.starts_with("LUN 1 of")));
        drop((unit, target));
        let target = served(&lost);
        assert_eq!(of(&target, &Ok(())), lost, "it is as it was");
        assert!(target.stop(Duration::ZERO).is_err());
        drop(target);
        assert_eq!(of(&served(&[]), &Ok(())), [], "it was opened again");
    }

    #[test]
    fn what_is_no_file_and_may_have_lost_something_is_named() {
        let line = ["lunwire", "--listen", "127.0.0.1:0", "--target", NAME, "--lun", "null:1M"];
        let draft = Draft::from_options(&Line::parse_from(line).options).expect("options");
        let target = Target::start(draft.open(&[]).expect("a disk").plan).expect("a port");
        let closed = |source| Err(Error::Finish { target: NAME.to_owned(), lun: 0, source });
        assert_eq!(of(&target, &closed(OpError::Write)), [(NAME.to_owned(), 0)]);
        assert_eq!(of(&target, &closed(OpError::Silent)), [], "all that was acknowledged is there");
        assert_eq!(why_kept(&[]), None);
    }
}
