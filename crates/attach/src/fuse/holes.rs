// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where data and holes are, as `lseek` asks. No I/O.

use initiator::Geometry;
use initiator::scsi::lba_status::Descriptor;
use initiator::scsi::lba_status::Provisioning;

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// `SEEK_DATA`.
    Data,
    /// `SEEK_HOLE`.
    Hole,
}

/// How far a search has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is there.
    Found(u64),
    /// It is not before this place, from which the unit is to be asked next.
    On(u64),
}

/// Looks from the byte `at` on into what the unit has told. What it does not tell has data; a hole
/// is what reads as zeroes.
pub(super) fn look(told: &[Descriptor], geometry: &Geometry, wanted: Wanted, at: u64) -> Step {
    let block = u64::from(geometry.block.max(1));
    let mut to = at;
    for descriptor in told {
        let start = descriptor.lba.saturating_mul(block);
        let end = start.saturating_add(u64::from(descriptor.blocks).saturating_mul(block));
        // What leaves a gap, or goes back, is no answer.
        if start > to || end <= to {
            break;
        }
        let is_hole = descriptor.provisioning != Provisioning::Mapped && geometry.unmap_zeros;
        if is_hole == (wanted == Wanted::Hole) {
            return Step::Found(to);
        }
        to = end;
    }
    match (to > at, wanted) {
        (true, _) => Step::On(to),
        (false, Wanted::Data) => Step::Found(at),
        (false, Wanted::Hole) => Step::On(geometry.bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry = Geometry {
        block: 512,
        blocks: 100,
        transfer_max: 64,
        unmap_max: 64,
        unmap_granularity: 0,
        unmap_alignment: 0,
        same_max: 64,
        compare_max: 0,
        unmap_zeros: true,
        physical: 512,
        read_only: false,
        volatile_cache: true,
        write_through: true,
        protection: None,
    };

    fn run(lba: u64, blocks: u32, provisioning: Provisioning) -> Descriptor {
        Descriptor { lba, blocks, provisioning }
    }

    #[test]
    fn what_is_looked_for_is_found_or_lies_behind() {
        use Provisioning::Anchored;
        use Provisioning::Deallocated;
        use Provisioning::Mapped;
        let told = [run(1, 1, Mapped), run(2, 2, Deallocated), run(4, 1, Anchored)];
        let look = |wanted, at| look(&told, &GEOMETRY, wanted, at);
        assert_eq!(look(Wanted::Data, 600), Step::Found(600));
        assert_eq!(look(Wanted::Hole, 600), Step::Found(1024));
        assert_eq!(look(Wanted::Hole, 512), Step::Found(1024));
        let behind = [run(2, 2, Deallocated), run(4, 1, Anchored)];
        assert_eq!(super::look(&behind, &GEOMETRY, Wanted::Data, 1030), Step::On(2560));
    }

    #[test]
    fn what_is_not_told_has_data() {
        use Provisioning::Deallocated;
        for odd in [&[][..], &[run(2, 1, Deallocated)], &[run(0, 1, Deallocated)]] {
            assert_eq!(look(odd, &GEOMETRY, Wanted::Data, 512), Step::Found(512));
            assert_eq!(look(odd, &GEOMETRY, Wanted::Hole, 512), Step::On(51200));
        }
        let keeps = Geometry { unmap_zeros: false, ..GEOMETRY };
        let told = [run(0, 100, Deallocated)];
        assert_eq!(look(&told, &keeps, Wanted::Data, 0), Step::Found(0));
    }
}
