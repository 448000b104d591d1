// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paths on which a process before this one has left something.

use super::*;

fn is_up(world: &World) -> bool {
    world.told.iter().any(|event| matches!(event, Event::Up { .. }))
}

fn settle(world: &mut World) {
    for _ in 0..20 {
        (0..PATHS).for_each(|path| world.end(path));
    }
}

/// What is late on the last path must not come over what is written over the others.
#[test]
fn nothing_begins_before_what_was_left_on_each_path_has_ended() {
    let mut world = World::new(PathPolicy::LeastQueued, 1);
    world.bundle.patience.connect = PATIENCE;
    (0..PATHS).for_each(|path| world.bundle.take_over(path));
    world.lines[2].late.push(Copy { write: 99, block: 0 });
    world.up(0);
    world.up(1);
    settle(&mut world);
    let error = Error::new(Kind::NoPath);
    world.tell(2, Event::Down { session: session(2), error });
    world.wait(limits::PATHS_OPEN_PATIENCE * 3);
    assert!(!is_up(&world), "a path is not there");
    world.up(2);
    settle(&mut world);
    assert!(is_up(&world));
    world.write();
    world.drain();
    assert_eq!(world.ended.get(&1), Some(&true));
    // From then on a path may be lost as any.
    world.lose(1);
    world.write();
    settle(&mut world);
    assert_eq!(world.ended.get(&2), Some(&true));
}

#[test]
fn a_path_that_does_not_come_ends_what_has_not_begun() {
    let mut world = World::new(PathPolicy::LeastQueued, 1);
    world.bundle.patience.connect = Duration::from_secs(5);
    world.bundle.take_over(2);
    world.up(0);
    settle(&mut world);
    let error = Error::new(Kind::NoPath);
    world.tell(2, Event::Down { session: session(2), error });
    world.wait(Duration::from_secs(4));
    assert!(!is_up(&world) && world.told.is_empty(), "{:?}", world.told);
    world.wait(Duration::from_secs(2));
    let error = world.bundle.post(1, request(), world.now).map_err(|(error, _)| error);
    assert!(matches!(error.unwrap_err().kind(), Kind::NoPath) && !is_up(&world));
}
