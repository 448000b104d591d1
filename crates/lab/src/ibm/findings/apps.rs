// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Section 3.2: what the study proposes to do with SCSI over TCP/IP.

use super::super::apps::{Applications, Case, Copies, DEEP, Moved, Shared, TUNED, Tried};
use crate::picture::{Bar, Kind, Picture, bytes, number};
use crate::study::{Figure, Table};
use crate::verdict::{Bound, Spread, Test};

/// Hosts that get less together than this part of what one gets alone are in each other's way.
const SHARED: f64 = 0.5;

/// A line that carries at least this part of what it can is full.
const FULL: f64 = 0.9;

/// MB/s of the faster Ethernet of the study's day, over which "low end applications would have
/// adequate performance".
const ADEQUATE: f64 = 12.5;

/// What connections are for: several carry at least so many times what one does.
const MORE: f64 = 2.0;

pub(super) fn figure(applications: &Applications) -> Figure {
    let title = "Section 3.2: a disc that is shared, lists of access, remote copy";
    let mut figure = Figure::new(&["Applications of section 3.2"], title);
    figure.method = method(applications);
    match &applications.discs {
        Ok(read) => discs(&mut figure, read),
        Err(why) => [DISC, HOSTS].into_iter().for_each(|it| figure.not_here(it, why.clone())),
    }
    access(&mut figure, &applications.access);
    match &applications.copies {
        Ok(copies) => remote(&mut figure, copies),
        Err(why) => figure.not_here(REMOTE, why.clone()),
    }
    figure
}

const DISC: &str = "\"Shared access to storage other than disks\": a DVD for several hosts";
const HOSTS: &str = "Hosts that share it are not in each other's way";
const REMOTE: &str = "Remote copy over the Internet in place of leased lines";

fn method(applications: &Applications) -> String {
    let mut method = format!(
        "The disc is an image of {} in a drive (`iso:`); hosts are threads with a session each \
         over loopback, which begin at once and compare each block with what belongs there. Lists \
         of access are tried by logins and commands.",
        bytes(applications.disc)
    );
    if let Ok(copies) = &applications.copies {
        method.push_str(&format!(
            " Remote copy is `lunwire copy` from a stream to a disk that drops what it gets, over \
             a router in user space between two network namespaces: it takes each frame of 1,500 \
             bytes from a veth, lets it wait in a queue of 100 ms for its turn at 1 Gbit/s, loses \
             some at random by a fixed seed, and hands the others over half a round trip later. \
             TCP is the kernel's. Rates are of streams that have arrived, {} MB/s at most, in \
             slices one after the other once a copy is at its pace: these are the repetitions. A \
             send buffer is 4 MiB at most, as Linux has it, and {} MiB where it is tuned \
             (net.ipv4.tcp_wmem, by root): a program alone gets more than net.core.wmem_max only \
             by SO_SNDBUFFORCE, which needs CAP_NET_ADMIN.",
            number(copies.most),
            TUNED >> 20
        ));
    }
    method
}

/// A part that was counted; all of it is one.
fn all(name: &str, [good, of]: [u64; 2]) -> Test {
    let part = crate::measure::real(good) / crate::measure::real(of.max(1));
    Test::new(name, Spread::exact(part), Bound::Within(1.0, 1.0))
}

fn discs(figure: &mut Figure, discs: &[Shared]) {
    let mut table = Table::new(&["hosts", "MB/s together", "blocks right", "writes refused"]);
    for shared in discs {
        let of = |[good, of]: [u64; 2]| format!("{good} of {of}");
        table.row(vec![
            shared.hosts.to_string(),
            number(Spread::of(&shared.rates).median),
            of(shared.blocks),
            of(shared.refused),
        ]);
    }
    figure.tables.push(table);
    let sum = |of: fn(&Shared) -> [u64; 2]| {
        discs.iter().map(of).fold([0; 2], |sum, one| [sum[0] + one[0], sum[1] + one[1]])
    };
    let blocks = sum(|shared| shared.blocks);
    let refused = sum(|shared| shared.refused);
    figure.claim(
        DISC,
        format!(
            "{} of {} blocks came as they are on the disc, {} of {} writes were refused",
            blocks[0], blocks[1], refused[0], refused[1]
        ),
        vec![all("blocks that are right", blocks), all("writes that are refused", refused)],
    );
    let Some((one, several)) = discs.split_first() else { return };
    let tests: Vec<Test> = several
        .iter()
        .map(|shared| {
            let ratio = Spread::ratio(&shared.rates, &one.rates);
            Test::new(format!("{} hosts by one", shared.hosts), ratio, Bound::Above(SHARED))
        })
        .collect();
    figure.claim(
        HOSTS,
        format!("{} times what one gets, the median of all", number(super::middle(&tests))),
        tests,
    );
}

fn access(figure: &mut Figure, tried: &[Tried]) {
    let tests: Vec<Test> =
        tried.iter().map(|one| all(one.what, [u64::from(one.as_listed), 1])).collect();
    let held = tried.iter().filter(|one| one.as_listed).count();
    figure.claim(
        "Lists of access: a network that everybody is on does not give everybody each disk",
        format!("{held} of {} tries came out as the list says", tried.len()),
        tests,
    );
}

fn remote(figure: &mut Figure, copies: &Copies) {
    figure.tables.push(table(copies));
    figure.pictures.push(picture(copies));
    let rate = |case: Case| copies.of(case).map(|moved| Spread::of(&moved.rates));
    let (whole, verified) = copies.verified;
    let clean = copies.moved.iter().filter(|moved| moved.case.loss <= 0.0);
    let mut tests: Vec<Test> = clean.map(adequate).collect();
    tests.insert(0, all("copies that read back as they were", [1, 1]));
    figure.claim(
        format!("{REMOTE}: it works, and as fast as the study's Ethernet of 100 Mbit/s"),
        format!(
            "{} written and read back over 100 ms at {} MB/s, the login included; without loss {} \
             MB/s or more in each case",
            bytes(whole),
            number(verified),
            number(tests.iter().skip(1).map(|test| test.spread.median).fold(f64::MAX, f64::min)),
        ),
        tests,
    );
    let lossy: Vec<Test> =
        copies.moved.iter().filter(|moved| moved.case.loss > 0.0).map(adequate).collect();
    if !lossy.is_empty() {
        let most = lossy.iter().map(|test| test.spread.median).fold(0.0, f64::max);
        figure.claim(
            "The same where frames are lost",
            format!("up to {} MB/s, by TCP's congestion control", number(most)),
            lossy,
        );
    }
    let deep = Case { depth: DEEP, ..Case::USUAL };
    let full = [Case { connections: 8, ..deep }, Case { buffer: TUNED, ..deep }];
    let tests: Vec<Test> = full
        .into_iter()
        .filter_map(|case| {
            let part = rate(case)? * (1.0 / copies.most);
            Some(Test::new(format!("of the line: {}", case.name()), part, Bound::Above(FULL)))
        })
        .collect();
    claim(
        figure,
        "A copy that is tuned fills 1 Gbit/s at 100 ms",
        "of what the line carries",
        tests,
    );
    let ratio = |name: &str, one: Case, other: Case, bound| {
        let (one, other) = (copies.of(one)?, copies.of(other)?);
        Some(Test::new(name, Spread::ratio(&one.rates, &other.rates), bound))
    };
    let several = [0.1, 1.0].map(|loss| {
        let one = Case { loss, ..deep };
        let name = format!("8 connections by one, loss {loss} %");
        ratio(&name, Case { connections: 8, ..one }, one, Bound::Above(MORE))
    });
    claim(
        figure,
        "Several connections carry more than one where a single one is held back",
        "times what one connection carries",
        several.into_iter().flatten().collect(),
    );
    let lossy = [1, 8].map(|connections| {
        let cubic = Case { loss: 1.0, connections, ..deep };
        let name = format!("bbr by cubic, {connections} of them, loss 1 %");
        ratio(&name, Case { control: "bbr", ..cubic }, cubic, Bound::Above(MORE))
    });
    claim(
        figure,
        "\"Its performance is going to be continually improved\": a TCP of today takes loss for \
         loss, not for a full line",
        "times what cubic carries",
        lossy.into_iter().flatten().collect(),
    );
    let eight = Case { connections: 8, ..deep };
    let window =
        ratio("by 16 commands", eight, Case { depth: Some(16), ..eight }, Bound::Above(1.0));
    claim(
        figure,
        "A window that follows the distance carries more than 16 MiB",
        "times what 16 commands of 1 MiB under way carry",
        window.into_iter().collect(),
    );
}

fn claim(figure: &mut Figure, theirs: &str, what: &str, tests: Vec<Test>) {
    if !tests.is_empty() {
        let ours = format!("{} {what}, the median of all", number(super::middle(&tests)));
        figure.claim(theirs, ours, tests);
    }
}

fn adequate(moved: &Moved) -> Test {
    let name = format!("MB/s: {}", moved.case.name());
    Test::new(name, Spread::of(&moved.rates), Bound::Above(ADEQUATE))
}

fn table(copies: &Copies) -> Table {
    let mut table = Table::new(&[
        "round trip, ms",
        "loss, %",
        "congestion control",
        "connections",
        "commands at once",
        "send buffer, MiB",
        "MB/s",
        "of the line, %",
        "frames lost",
        "dropped",
    ]);
    for moved in &copies.moved {
        let case = moved.case;
        let rate = Spread::of(&moved.rates).median;
        table.row(vec![
            case.trip.to_string(),
            case.loss.to_string(),
            case.control.into(),
            case.connections.to_string(),
            case.depth.map_or_else(|| "as found".into(), |depth| depth.to_string()),
            (case.buffer >> 20).to_string(),
            number(rate),
            number(100.0 * rate / copies.most),
            moved.frames.lost.to_string(),
            moved.frames.dropped.to_string(),
        ]);
    }
    table
}

fn picture(copies: &Copies) -> Picture {
    let bar = |moved: &Moved| {
        let case = moved.case;
        let line = format!("{} ms, {} %, {}", case.trip, case.loss, case.control);
        let mut how = format!("x{}", case.connections);
        how.extend(case.depth.map(|depth| format!(", depth {depth}")));
        Bar::new(&line, &how, vec![Spread::of(&moved.rates).median])
    };
    Picture {
        file: "copies",
        title: "Remote copy over 1 Gbit/s".into(),
        unit: "MB/s",
        kind: Kind::Bars { parts: vec![""], bars: copies.moved.iter().map(bar).collect() },
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::apps::Moved;
    use super::*;
    use crate::verdict::Verdict;

    fn moved(case: Case, rate: f64) -> Moved {
        Moved { case, rates: vec![rate, rate * 1.01, rate * 0.99], frames: Default::default() }
    }

    fn applications(copies: Result<Copies, String>) -> Applications {
        let shared = |hosts, rate: f64| Shared {
            hosts,
            rates: vec![rate; 3],
            blocks: [100, 100],
            refused: [3, 3],
        };
        let discs = Ok(vec![shared(1, 100.0), shared(2, 120.0)]);
        let access = vec![Tried { what: "it", as_listed: true }];
        Applications { discs, disc: 1 << 20, access, copies }
    }

    fn verdicts(applications: &Applications) -> Vec<Verdict> {
        figure(applications).claims.iter().map(|claim| claim.verdict()).collect()
    }

    #[test]
    fn one_block_that_is_wrong_or_one_try_decides() {
        use Verdict::{Holds, InPart, NoLonger, NotHere};
        let mut all = applications(Err("no root".into()));
        assert_eq!(verdicts(&all), [Holds, Holds, Holds, NotHere]);
        if let Ok(discs) = &mut all.discs {
            discs[1].blocks[0] -= 1;
            discs[1].rates = vec![49.0; 3];
        }
        all.access.push(Tried { what: "another", as_listed: false });
        assert_eq!(verdicts(&all), [InPart, NoLonger, InPart, NotHere]);
        all.discs = Err("no room".into());
        assert_eq!(verdicts(&all), [NotHere, NotHere, InPart, NotHere]);
    }

    #[test]
    fn a_line_is_full_or_not() {
        let deep = Case { depth: DEEP, ..Case::USUAL };
        let eight = Case { connections: 8, ..deep };
        let lossy = Case { loss: 1.0, ..deep };
        let copies = |eights: f64| Copies {
            moved: vec![
                moved(Case::USUAL, 20.0),
                moved(eight, eights),
                moved(Case { depth: Some(16), ..eight }, 62.0),
                moved(lossy, 0.2),
                moved(Case { connections: 8, ..lossy }, 0.2 * eights / 20.0),
                moved(Case { control: "bbr", ..lossy }, 30.0),
            ],
            verified: (1 << 20, 3.0),
            most: 117.0,
        };
        let told = |eights| {
            let figure = figure(&applications(Ok(copies(eights))));
            let claims = figure.claims.iter().skip(3);
            claims.map(|claim| claim.verdict().name()).collect::<Vec<_>>()
        };
        let words = ["holds", "holds in part", "holds", "holds", "holds", "holds"];
        assert_eq!(told(112.0), words);
        let words = ["holds", "holds in part", "no longer", "no longer", "holds", "no longer"];
        assert_eq!(told(35.0), words);
    }
}
