// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where io_uring is forbidden, as container runtimes do, epoll is chosen and the reason named.
#![allow(clippy::unwrap_used)] // a test fails by panicking

extern crate lunwire_engine as engine;

mod sandbox;

use std::io;
use std::thread;

use engine::Choice;
use engine::Config;
use engine::epoll::Epoll;
use engine::uring::Uring;
use libc::sock_filter;

use self::sandbox::confine;

/// Makes io_uring_setup(2) fail with `EPERM` on the calling thread, for ever.
fn forbid() -> io::Result<()> {
    let call = u32::try_from(libc::SYS_io_uring_setup).unwrap();
    let errno = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    let load = u16::try_from(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS).unwrap();
    let jump = u16::try_from(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K).unwrap();
    let give = u16::try_from(libc::BPF_RET | libc::BPF_K).unwrap();
    // The number of the system call is the first word of what the filter sees.
    let mut filter = [
        sock_filter { code: load, jt: 0, jf: 0, k: 0 },
        sock_filter { code: jump, jt: 0, jf: 1, k: call },
        sock_filter { code: give, jt: 0, jf: 0, k: errno },
        sock_filter { code: give, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ];
    confine(&mut filter)
}

#[test]
fn epoll_is_chosen_where_io_uring_is_forbidden() {
    let sandboxed = thread::spawn(|| {
        if let Err(error) = forbid() {
            return println!("skipped: no seccomp filters here: {error}");
        }
        let error = Uring::new(&Config::default()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        let report = engine::probe();
        assert_eq!(report.choice, Choice::Epoll);
        let text = report.to_string();
        assert!(text.starts_with("epoll on Linux") && text.contains("try:"), "{text}");
        assert_eq!(engine::choose(Choice::Auto), Choice::Epoll);
        assert_eq!(engine::choose(Choice::Uring), Choice::Uring);
        assert!(Epoll::new(&Config::default()).is_ok());
    });
    sandboxed.join().unwrap();
}
