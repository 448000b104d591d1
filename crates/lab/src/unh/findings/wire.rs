// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was run, and what it put on the wire.

use super::super::frames::{BYTES, FRAME_OVERHEAD, SEGMENT};
use super::super::theirs::{COMBINATIONS, LAYERS, PAYLOAD_MAX};
use super::super::{Carrier, Load, Measured};
use crate::measure::real;
use crate::picture::{Bar, Kind, Picture, bytes};
use crate::study::{Figure, Table};
use crate::verdict::{Bound, Spread, Test};

/// Table 4.1.
pub(super) fn combinations() -> Figure {
    let mut figure = Figure::new(&["Table 4.1"], "Table 4.1: combinations, and what was run here");
    let mut table =
        Table::new(&["initiator", "target", "initiator in", "target in", "mode", "study", "here"]);
    for one in &COMBINATIONS {
        let [initiator, target] = one.protocols;
        let [initiator_space, target_space] = one.spaces;
        let here = match one.why_not() {
            None => "measured".to_owned(),
            Some(why) => format!("not here, because {why}"),
        };
        let study = if one.measured { "measured" } else { "not measured" };
        let cells = [initiator, target, initiator_space, target_space, one.mode, study];
        table.row(cells.into_iter().map(str::to_owned).chain([here]).collect());
    }
    figure.tables.push(table);
    let run = COMBINATIONS.iter().filter(|one| one.why_not().is_none());
    let new = run.clone().filter(|one| !one.measured).count();
    figure.claim(
        "Its design supports combinations that it had no time for",
        format!("{} are run here, of which it measured {}", run.clone().count(), run.count() - new),
        vec![Test::new(
            "combinations that it did not measure",
            Spread::exact(real(new as u64)),
            Bound::Above(0.0),
        )],
    );
    figure
}

/// Tables 4.2 and 4.3.
pub(super) fn headers(measured: &Measured) -> Figure {
    let mut figure =
        Figure::new(&["Table 4.2", "Table 4.3"], "Tables 4.2 and 4.3: header bytes of a frame");
    figure.method = "Frames are those that our own stack cuts for Ethernet. The second table \
                     counts all bytes of both directions in captures of sessions over loopback, \
                     whose FPDUs are longer than Ethernet's; frames are taken as full."
        .into();
    let [rdma, payload, crc] = measured.counted.rdma;
    let mut table = Table::new(&["layer", "study, RDMA", "ours, RDMA", "study, TCP", "ours, TCP"]);
    let mut sums = [0; 2];
    for (layer, theirs_rdma, theirs_tcp) in LAYERS {
        let ours: [Option<usize>; 2] = match layer {
            "tagged RDMA header" => [Some(rdma), None],
            "payload" => [Some(payload), Some(SEGMENT)],
            "MPA CRC" => [Some(crc), None],
            _ => [theirs_rdma, theirs_tcp].map(|count| count.map(|count| count as usize)),
        };
        sums.iter_mut().zip(ours).for_each(|(sum, count)| *sum += count.unwrap_or(0));
        let shown = |count: Option<usize>| count.map(|count| count.to_string()).unwrap_or_default();
        let theirs = [theirs_rdma, theirs_tcp].map(|count| count.map(|count| count as usize));
        table.row(vec![
            layer.into(),
            shown(theirs[0]),
            shown(ours[0]),
            shown(theirs[1]),
            shown(ours[1]),
        ]);
    }
    let total = |count: usize| count.to_string();
    table.row(vec!["frame".into(), "1538".into(), total(sums[0]), "1538".into(), total(sums[1])]);
    figure.tables.push(table);
    let share =
        |payload: usize| 100.0 * real(payload as u64) / (real(SEGMENT as u64) + FRAME_OVERHEAD);
    let tests = [("RDMA", payload), ("TCP", SEGMENT)].into_iter().zip(PAYLOAD_MAX);
    let tests = tests.map(|((what, payload), most)| {
        let near = Bound::Within(most / 100.0 - 0.1, most / 100.0 + 0.1);
        Test::new(format!("% that are payload, {what}"), Spread::exact(share(payload)), near)
    });
    figure.claim(
        "\"93.6 % of 10 Gb/s are payload with RDMA, 94.9 % without\"",
        format!(
            "in full frames {:.1} % are, without RDMA {:.1} % (Linux spends 12 bytes more on a \
             time stamp in each)",
            share(payload),
            share(SEGMENT)
        ),
        tests.collect(),
    );
    let mut table = Table::new(&["1 MiB", "bytes on the stream", "besides payload", "payload, %"]);
    let mut bars = Vec::new();
    for write in [false, true] {
        for carrier in Carrier::BOTH {
            let load = Load::of(carrier, write, BYTES);
            let Some(counted) = measured.counted.of(load) else { continue };
            let what = if write { "write" } else { "read" };
            let name = format!("{what}, {}", carrier.name());
            let besides = counted.stream - i64::from(BYTES);
            let efficiency = 100.0 * counted.efficiency();
            table.row(vec![
                name,
                counted.stream.to_string(),
                besides.to_string(),
                format!("{efficiency:.1}"),
            ]);
            bars.push(Bar::new(what, carrier.name(), vec![efficiency]));
        }
    }
    figure.tables.push(table);
    figure.pictures.push(Picture {
        file: "payload-share",
        title: "Payload of what Ethernet would carry for 1 MiB, all messages counted".into(),
        unit: "%",
        kind: Kind::Bars { parts: vec!["payload"], bars },
    });
    figure
}

/// Figures 4-10 and 4-11: the layers, and what a transfer of 1 MiB takes.
pub(super) fn messages(measured: &Measured) -> Figure {
    let mut figure = Figure::new(
        &["Figure 4-10", "Figure 4-11"],
        "Figures 4-10 and 4-11: messages of a transfer of 1 MiB",
    );
    let mut table = Table::new(&["transfer", "carrier", "commands", "messages", "bytes"]);
    let mut bars = Vec::new();
    for counted in &measured.counted.transfers {
        let load = counted.load;
        let what = if load.write { "write" } else { "read" };
        let unasked =
            load == Load { cut: load.cut, ..Load::of(load.carrier, load.write, BYTES).unasked() };
        let how = if unasked { ", first burst unasked" } else { "" };
        let commands = BYTES.div_ceil(load.cut);
        table.row(vec![
            format!("{what}{how}"),
            load.carrier.name().into(),
            format!("{commands} of {}", bytes(u64::from(load.cut.min(BYTES)))),
            counted.told(),
            counted.stream.to_string(),
        ]);
        let count: i64 = counted.messages.values().sum();
        let count = real(u64::try_from(count).unwrap_or_default());
        let name = format!(
            "{}, {commands} command{}",
            load.carrier.name(),
            if commands > 1 { "s" } else { "" }
        );
        bars.push(Bar::new(&format!("{what}{how}"), &name, vec![count]));
    }
    figure.tables.push(table);
    figure.pictures.push(Picture {
        file: "figure-4-11",
        title: "Figures 4-10, 4-11: messages of a transfer of 1 MiB".into(),
        unit: "PDUs or RDMA messages",
        kind: Kind::Bars { parts: vec!["messages"], bars },
    });
    let count = |load: Load| {
        let messages = measured.counted.of(load).map(|counted| counted.messages.values().sum());
        real(u64::try_from(messages.unwrap_or(0_i64)).unwrap_or_default())
    };
    let write = Load::of(Carrier::Iwarp, true, BYTES);
    let (one, two) = (count(write), count(write.in_pieces()));
    figure.claim(
        "\"For each megabyte two CDBs, two command PDUs and two response PDUs\" with commands of \
         512 KiB",
        format!(
            "a write over iSER is {two:.0} messages, and {one:.0} in one command; bursts of 512 \
             KiB make two RDMA Reads of it either way"
        ),
        vec![Test::new("messages more", Spread::exact(two - one), Bound::Above(0.0))],
    );
    figure
}
