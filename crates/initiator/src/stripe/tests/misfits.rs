// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Members that are not what they were.

use super::*;

fn measure(world: &mut World) -> Result<Done, Error> {
    world.execute(command::read_capacity_16(32), &|| Data::In(32))
}

fn write(world: &mut World, blocks: u32) -> Result<Done, Error> {
    let cdb = world.geometry().write(0, blocks);
    let bytes = vec![7; blocks as usize * BLOCK];
    world.execute(cdb, &|| Data::Out(Slice::from(bytes.clone())))
}

fn read(world: &mut World) -> Result<Done, Error> {
    let cdb = world.geometry().read(0, 8);
    world.execute(cdb, &|| Data::In(8 * 512))
}

/// Offsets would be those of other blocks: nothing is read or written, as of a single disk.
#[test]
fn nothing_goes_to_disks_whose_blocks_have_changed() {
    let mut world = World::new(units(), 3);
    write(&mut world, 8).unwrap();
    world.units[1].block = 4096;
    let error = measure(&mut world).unwrap_err();
    let other =
        |error: &Error| matches!(error.kind(), Kind::Stripe(StripeError::Blocks { member: 2, .. }));
    assert!(other(&error), "{error}");
    world.units[1].under_way.clear();
    for result in [write(&mut world, 24), read(&mut world)] {
        let error = result.unwrap_err();
        assert!(other(&error), "{error}");
    }
    assert!(world.units[1].bytes.iter().all(|byte| *byte == 0), "it was written");
    world.units[1].block = 512;
    measure(&mut world).unwrap();
    write(&mut world, 24).unwrap();
    read(&mut world).unwrap();
}

#[test]
fn a_disk_that_has_no_whole_chunk_left_stops_all() {
    let mut world = World::new(units(), 3);
    let bytes = std::mem::replace(&mut world.units[2].bytes, vec![0; 512]);
    let error = measure(&mut world).unwrap_err();
    assert!(matches!(error.kind(), Kind::Stripe(StripeError::Small { member: 3, .. })), "{error}");
    write(&mut world, 8).unwrap_err();
    world.units[2].bytes = bytes;
    measure(&mut world).unwrap();
    write(&mut world, 24).unwrap();
}
