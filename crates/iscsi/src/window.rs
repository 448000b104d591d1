// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command window of a session: CmdSN, ExpCmdSN, MaxCmdSN (RFC 7143 §4.2.2.1).
//!
//! ```text
//!        ExpCmdSN                     MaxCmdSN
//!   ... |  hole  | held | hole | held |  ...      held: arrived, waits for the holes before it
//!   old  <------ the window ---------> beyond     old and beyond: ignored
//! ```
//!
//! MaxCmdSN only grows, so the window closes by commands that are taken and opens by commands that
//! end.

use crate::serial::Serial;
use alloc::vec::Vec;
use wire::iscsi::CmdSn;

/// ExpCmdSN, MaxCmdSN and what has arrived between them. `T` is what waits for its turn.
#[derive(Debug)]
pub struct Window<T> {
    exp: CmdSn,
    max: CmdSn,
    depth: u16,
    /// Ring of `depth` places; the one of ExpCmdSN is `head`.
    places: Vec<WindowSlot<T>>,
    head: usize,
    held: usize,
}

#[derive(Debug)]
enum WindowSlot<T> {
    Hole,
    Held(T),
    /// Counts as received although it never came (RFC 7143 §11.6.1).
    Plugged,
}

/// Where a CmdSN stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // a number is in one of these places
pub enum Position {
    /// It is ExpCmdSN.
    Next,
    /// Within the window, behind a hole.
    Ahead,
    /// Received before and still waiting.
    Duplicate,
    /// Old, or beyond MaxCmdSN: silently ignored.
    Outside,
}

impl<T> Window<T> {
    /// An open window of `depth` (at least 1) commands from `exp` on.
    pub fn new(exp: CmdSn, depth: u16) -> Self {
        let depth = depth.max(1);
        let mut places = Vec::new();
        places.resize_with(usize::from(depth), || WindowSlot::Hole);
        let max = exp.plus(u32::from(depth) - 1);
        Self { exp, max, depth, places, head: 0, held: 0 }
    }

    /// ExpCmdSN: one past the last command that could be delivered without a hole.
    pub const fn exp(&self) -> CmdSn {
        self.exp
    }

    /// MaxCmdSN: the last command that is taken.
    pub const fn max(&self) -> CmdSn {
        self.max
    }

    /// Largest size, commands.
    pub const fn depth(&self) -> u16 {
        self.depth
    }

    /// Commands that may still come: MaxCmdSN - ExpCmdSN + 1; 0 is a closed window.
    pub fn size(&self) -> u32 {
        self.max.plus(1).steps_from(self.exp)
    }

    /// Commands that wait behind a hole.
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Where `number` stands.
    pub fn position(&self, number: CmdSn) -> Position {
        let steps = number.steps_from(self.exp);
        if steps >= self.size() {
            return Position::Outside;
        }
        match self.place(steps) {
            Some(WindowSlot::Hole) if steps == 0 => Position::Next,
            Some(WindowSlot::Hole) => Position::Ahead,
            Some(_) => Position::Duplicate,
            None => Position::Outside,
        }
    }

    /// Takes the command of ExpCmdSN past the ring: it is being delivered.
    pub fn advance(&mut self) {
        assert!(self.size() > 0, "a closed window takes nothing");
        assert!(matches!(self.place(0), Some(WindowSlot::Hole)), "ExpCmdSN has not arrived before");
        self.step();
    }

    /// Takes back the last `advance` or `pop`: its command was rejected, so its number counts as
    /// not received (RFC 7143 §7.3). Only before the next call of `open`.
    pub fn retreat(&mut self) {
        assert!(self.size() < u32::from(self.depth), "nothing was taken");
        self.exp = self.exp.minus(1);
        self.head = self.head.checked_sub(1).unwrap_or(self.places.len() - 1);
        assert!(matches!(self.place(0), Some(WindowSlot::Hole)), "what was taken left a hole");
    }

    /// Keeps what came with `number` until its turn. False (and `item` is dropped) unless `number`
    /// is a hole of the window.
    pub fn hold(&mut self, number: CmdSn, item: T) -> bool {
        self.fill(number, WindowSlot::Held(item))
    }

    /// Regards `number` as received. False unless it is a hole of the window.
    pub fn plug(&mut self, number: CmdSn) -> bool {
        self.fill(number, WindowSlot::Plugged)
    }

    /// The command whose turn it is, without taking it; steps over plugs first.
    pub fn peek(&mut self) -> Option<&T> {
        while matches!(self.place(0), Some(WindowSlot::Plugged)) && self.size() > 0 {
            self.step();
        }
        match self.place(0) {
            Some(WindowSlot::Held(item)) => Some(item),
            _ => None,
        }
    }

    /// Takes the command whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        self.peek()?;
        match self.step() {
            WindowSlot::Held(item) => Some(item),
            WindowSlot::Hole | WindowSlot::Plugged => None,
        }
    }

    /// Takes a waiting command out of turn: its number counts as received.
    pub fn take(&mut self, number: CmdSn) -> Option<T> {
        let steps = number.steps_from(self.exp);
        if steps >= self.size() {
            return None;
        }
        let place = self.place_mut(steps)?;
        match core::mem::replace(place, WindowSlot::Plugged) {
            WindowSlot::Held(item) => {
                self.held -= 1;
                Some(item)
            }
            other => {
                *place = other;
                None
            }
        }
    }

    /// Takes out what waits and is `lost`: its number counts as not received, so that it may come
    /// again.
    pub fn forget(&mut self, mut lost: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut forgotten = Vec::new();
        for place in &mut self.places {
            if matches!(place, WindowSlot::Held(item) if lost(item))
                && let WindowSlot::Held(item) = core::mem::replace(place, WindowSlot::Hole)
            {
                self.held -= 1;
                forgotten.push(item);
            }
        }
        forgotten
    }

    /// Lets the initiator send `allowed` commands from ExpCmdSN on; never takes back what it may
    /// send already.
    pub fn open(&mut self, allowed: u16) {
        let max = self.exp.plus(u32::from(allowed.min(self.depth))).minus(1);
        if max.is_after(self.max) {
            self.max = max;
        }
    }

    /// Panics if an invariant does not hold.
    pub fn check(&self) {
        assert!(self.size() <= u32::from(self.depth), "window larger than its depth");
        assert!(!self.max.plus(1).is_before(self.exp), "MaxCmdSN below ExpCmdSN - 1");
        let held = self.places.iter().filter(|place| matches!(place, WindowSlot::Held(_))).count();
        assert_eq!(held, self.held, "count of held commands");
        let size = self.size();
        let beyond =
            (size..u32::from(self.depth)).all(|n| matches!(self.place(n), Some(WindowSlot::Hole)));
        assert!(beyond, "a place beyond MaxCmdSN is taken");
    }

    fn fill(&mut self, number: CmdSn, with: WindowSlot<T>) -> bool {
        if !matches!(self.position(number), Position::Next | Position::Ahead) {
            return false;
        }
        let holds = matches!(with, WindowSlot::Held(_));
        let Some(place) = self.place_mut(number.steps_from(self.exp)) else { return false };
        *place = with;
        self.held += usize::from(holds);
        true
    }

    /// Moves ExpCmdSN by one and gives what stood there.
    fn step(&mut self) -> WindowSlot<T> {
        let head = self.head;
        self.exp = self.exp.plus(1);
        self.head = if head + 1 == self.places.len() { 0 } else { head + 1 };
        let place = self.places.get_mut(head).expect("head is always within the ring");
        let place = core::mem::replace(place, WindowSlot::Hole);
        self.held -= usize::from(matches!(place, WindowSlot::Held(_)));
        place
    }

    fn place(&self, steps: u32) -> Option<&WindowSlot<T>> {
        self.places.get(self.index(steps)?)
    }

    fn place_mut(&mut self, steps: u32) -> Option<&mut WindowSlot<T>> {
        let index = self.index(steps)?;
        self.places.get_mut(index)
    }

    fn index(&self, steps: u32) -> Option<usize> {
        let steps = usize::try_from(steps).ok()?;
        let len = self.places.len();
        if steps >= len {
            return None;
        }
        let index = self.head + steps;
        Some(if index >= len { index - len } else { index })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window with these ends.
    fn window(exp: u32, max: u32) -> Window<u32> {
        let size = max.wrapping_add(1).wrapping_sub(exp);
        let mut window = Window::new(CmdSn(exp), 32);
        window.max = CmdSn(max);
        assert_eq!(window.size(), size);
        window.check();
        window
    }

    /// Covers: CMD-01/T, CMD-08, CMD-17/T.
    #[test]
    fn positions_of_the_window_cases() {
        use Position::{Ahead, Next, Outside};
        let table = [
            (10, 9, 0, 10, Outside),
            (10, 10, 1, 10, Next),
            (10, 41, 32, 9, Outside),
            (10, 41, 32, 12, Ahead),
            (10, 41, 32, 42, Outside),
            (0xffff_fff0, 0x0000_000f, 32, 0x0000_0003, Ahead),
            (0xffff_fff0, 0x0000_000f, 32, 0x0000_0010, Outside),
            (0x0000_0000, 0xffff_ffff, 0, 0, Outside),
            (0x8000_0000, 0x7fff_ffff, 0, 0x8000_0000, Outside),
        ];
        for (exp, max, size, tried, position) in table {
            let window = window(exp, max);
            assert_eq!(window.size(), size);
            assert_eq!(window.position(CmdSn(tried)), position, "{exp:#x}..{max:#x}: {tried:#x}");
        }
    }

    #[test]
    fn one_command_closes_a_window_of_one() {
        let mut window = window(10, 10);
        window.advance();
        assert_eq!((window.exp(), window.size()), (CmdSn(11), 0));
        assert_eq!(window.position(CmdSn(11)), Position::Outside);
        window.open(1);
        assert_eq!(window.position(CmdSn(11)), Position::Next);
        window.check();
    }

    #[test]
    fn commands_behind_a_hole_wait_in_order() {
        let mut window = window(0xffff_fffe, 0x1d);
        assert!(window.hold(CmdSn(1), 1));
        assert!(window.hold(CmdSn(0xffff_ffff), 0xffff_ffff));
        assert!(!window.hold(CmdSn(1), 7));
        assert_eq!(window.position(CmdSn(1)), Position::Duplicate);
        assert_eq!((window.exp(), window.pop()), (CmdSn(0xffff_fffe), None));
        window.advance();
        assert_eq!(window.pop(), Some(0xffff_ffff));
        assert_eq!(window.pop(), None);
        assert!(window.plug(CmdSn(0)));
        assert_eq!(window.peek(), Some(&1));
        assert_eq!((window.pop(), window.exp(), window.held()), (Some(1), CmdSn(2), 0));
        window.check();
    }

    #[test]
    fn a_command_taken_out_of_turn_leaves_no_hole() {
        let mut window = window(10, 41);
        assert!(window.hold(CmdSn(11), 11));
        assert_eq!(window.take(CmdSn(10)), None);
        assert_eq!(window.take(CmdSn(42)), None);
        assert_eq!(window.take(CmdSn(11)), Some(11));
        assert_eq!(window.position(CmdSn(11)), Position::Duplicate);
        window.advance();
        assert_eq!((window.pop(), window.exp()), (None, CmdSn(12)));
        window.check();
    }

    #[test]
    fn what_is_forgotten_may_come_again() {
        let mut window = window(10, 41);
        assert!(window.hold(CmdSn(11), 11) && window.hold(CmdSn(12), 12));
        assert!(window.plug(CmdSn(13)));
        assert_eq!(window.forget(|held| *held == 11), [11]);
        assert_eq!(window.position(CmdSn(11)), Position::Ahead);
        assert_eq!(window.position(CmdSn(12)), Position::Duplicate);
        assert_eq!(window.position(CmdSn(13)), Position::Duplicate);
        window.check();
    }

    #[test]
    fn the_window_never_shrinks() {
        let mut window = Window::<()>::new(CmdSn(5), 4);
        window.open(0);
        assert_eq!(window.max(), CmdSn(8));
        window.advance();
        window.open(3);
        assert_eq!((window.max(), window.size()), (CmdSn(8), 3));
        window.open(200);
        assert_eq!((window.max(), window.size()), (CmdSn(9), 4));
        window.check();
    }
}
