// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The same scenarios on every port.

#![allow(clippy::unwrap_used)] // a scenario fails by panicking, wherever it stands

extern crate lunwire_engine as engine;

use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use engine::Choice;
use engine::Config;
use engine::Port;
use engine::epoll::Epoll;
use engine::ppe::Idle;
use engine::ppe::Ppe;
use engine::ppe::Settings;
use engine::uring::Uring;

mod chores;
mod duplex;
mod files;
mod landing;
mod rig;
mod sockets;
mod starving;
mod waiting;
mod watching;

/// Runs each scenario on each engine; where io_uring is refused it says why.
macro_rules! suite {
    ($($module:ident :: $scenario:ident),* $(,)?) => {
        mod uring {
            $(#[test]
            fn $scenario() {
                if super::uring_is_allowed() {
                    let make = |config: &super::Config| super::Uring::new(config).unwrap();
                    super::$module::$scenario(make);
                }
            })*
        }
        mod asking {
            $(#[test]
            fn $scenario() {
                if super::uring_is_allowed() {
                    super::$module::$scenario(super::asking);
                }
            })*
        }
        mod epoll {
            $(#[test]
            fn $scenario() {
                let make = |config: &super::Config| super::Epoll::new(config).unwrap();
                super::$module::$scenario(make);
            })*
        }
        mod ppe {
            $(#[test]
            fn $scenario() {
                super::$module::$scenario(super::ppe);
            })*
        }
    };
}

suite! {
    sockets::echoes_messages_of_all_sizes,
    sockets::echoes_a_long_stream,
    sockets::serves_many_connections,
    sockets::half_close_keeps_the_other_direction,
    sockets::shutdown_waits_for_the_send_under_way,
    sockets::a_reset_ends_receiving,
    sockets::sending_to_a_dead_peer_fails,
    sockets::long_lists_are_sent_whole,
    sockets::pausing_stops_the_peer,
    sockets::held_chunks_stop_the_peer,
    sockets::closing_gives_everything_back,
    sockets::closing_a_listener_ends_accepting,
    sockets::a_connection_is_given_back_whole,
    sockets::giving_back_waits_for_the_send,
    sockets::dropping_the_port_gives_everything_back,
    sockets::misuse_is_an_event,
    sockets::thousands_of_idle_connections,
    landing::bytes_land_where_they_belong,
    landing::the_end_of_the_stream_gives_the_buffer_back,
    landing::closing_gives_a_landing_up,
    starving::idle_connections_starve_nobody,
    starving::slow_readers_and_two_buffers,
    starving::a_stopped_process_goes_on,
    files::what_is_written_is_read,
    files::reads_end_at_the_end,
    files::many_reads_at_once,
    files::punched_and_zeroed_ranges_read_as_zero,
    files::what_is_allocated_is_told,
    files::direct_files_take_any_memory,
    files::errors_are_the_kernels,
    files::a_number_belongs_to_one_file,
    files::removed_files_are_forgotten,
    files::dropping_the_port_waits_for_files,
    chores::they_run_beside_the_port,
    chores::dropping_the_port_waits_for_a_chore,
    duplex::values_flow_both_ways,
    watching::what_can_be_read_is_told_once,
    watching::closing_ends_watching,
    waiting::deadlines_are_kept,
    waiting::wakers_wake,
    waiting::wakers_race,
    waiting::idle_costs_nothing,
    waiting::short_waits_do_not_sleep,
}

/// A port that a core of its own serves, on the best engine.
fn ppe(config: &Config) -> Ppe {
    let port = config.clone();
    let settings = Settings { engine: Choice::Auto, port, cpu: None, idle: Idle::Sleep };
    let mut seats = engine::ppe::start(&settings, 1).unwrap();
    seats.pop().unwrap().into()
}

/// A ring whose waits have been short, so that it asks its sockets itself.
fn asking(config: &Config) -> Uring {
    let config = Config { spin_max: Duration::from_millis(5), ..config.clone() };
    let mut port = Uring::new(&config).unwrap();
    for _ in 0..64 {
        port.waker().wake();
        port.wait(None);
        while port.next_event().is_some() {}
    }
    port
}

fn uring_is_allowed() -> bool {
    let report = engine::probe();
    match &report.uring {
        Ok(_) => assert_eq!(report.choice, Choice::Uring),
        Err(why) => println!("skipped: io_uring is {why}"),
    }
    report.uring.is_ok()
}

/// Scenarios that need most of the machine run one after another.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
