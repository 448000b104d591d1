// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What touches every byte: copying and CRC, one after the other and in one go.

use buf::{Buf, Pool};
use crc::Crc32c;
use std::hint::black_box;

use super::theirs::COMMANDS;
use crate::Error;
use crate::measure::{Meter, real};

/// Header and header digest come before the data, so it begins here in what TCP has received.
const DATA_AT: usize = 52;

/// Bytes of a header, which has a digest of its own.
const HEADER: usize = 48;

/// Cycles for a data segment: means over all of 40 of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Costs<T> {
    /// Copying alone.
    pub(crate) copy: T,
    /// CRC of what was just copied, and of its header.
    pub(crate) crc: T,
    /// Both in one go.
    pub(crate) fused: T,
}

/// Data segments in received bytes, and buffers of commands.
#[derive(Debug)]
pub(crate) struct Segments {
    pairs: Vec<(Buf, Buf)>,
    size: usize,
}

impl Segments {
    pub(crate) fn new(size: usize) -> Result<Self, Error> {
        let bytes = COMMANDS * 4 * (size + 8192);
        let pool = Pool::new(bytes).map_err(|_| Error::Memory(bytes))?;
        let pair = || Some((filled(pool.take(size + DATA_AT)?), filled(pool.take(size)?)));
        let pairs: Option<Vec<_>> = (0..COMMANDS).map(|_| pair()).collect();
        Ok(Self { pairs: pairs.ok_or(Error::Memory(bytes))?, size })
    }

    /// With the CRC kernel in use.
    pub(crate) fn run(&mut self, cold: bool, meter: &Meter) -> Costs<f64> {
        let mut costs = Costs::<f64>::default();
        self.purge_if(cold, meter);
        for (src, dst) in &mut self.pairs {
            let (header, data) = parts(src, self.size);
            let (copy, ()) = meter.time(|| buf::copy(black_box(dst), data));
            let (crc, _) = meter.time(|| {
                black_box((crc::crc32c(header), crc::crc32c(black_box(dst))));
            });
            costs.copy += real(copy);
            costs.crc += real(crc);
        }
        self.purge_if(cold, meter);
        for (src, dst) in &mut self.pairs {
            let (header, data) = parts(src, self.size);
            let (fused, _) = meter.time(|| {
                let mut crc = Crc32c::new();
                crc.copy_update(black_box(dst), data);
                black_box((crc::crc32c(header), crc.finish()));
            });
            costs.fused += real(fused);
        }
        let count = real(self.pairs.len() as u64);
        let Costs { copy, crc, fused } = costs;
        Costs { copy: copy / count, crc: crc / count, fused: fused / count }
    }

    /// Headers stay: TCP has just looked at them.
    fn purge_if(&self, cold: bool, meter: &Meter) {
        if !cold {
            return;
        }
        meter.evict();
        for (src, dst) in &self.pairs {
            buf::purge(src);
            buf::purge(dst);
        }
        for (src, _) in &self.pairs {
            crate::measure::touch(parts(src, self.size).0);
        }
    }
}

fn parts(src: &[u8], size: usize) -> (&[u8], &[u8]) {
    let data = src.get(DATA_AT..DATA_AT + size).unwrap_or_default();
    (src.get(..HEADER).unwrap_or_default(), data)
}

/// Written once, so that the system has given its pages.
fn filled(mut buf: Buf) -> Buf {
    buf.fill(0x5a);
    buf
}
