// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls that a daemon never makes, and that who has taken it over would.
//!
//! It is a list of what is refused, and not one of what is allowed: libraries that are loaded
//! (librbd, librdmacm, the resolver of the C library) make calls that we do not know, and a call
//! that is missing would take disks from their hosts. For the same reason what is refused fails
//! (EPERM) and does not end the process.

use std::collections::BTreeMap;
use std::iter;

use seccompiler::BackendError;
use seccompiler::BpfProgram;
use seccompiler::SeccompAction;
use seccompiler::SeccompCmpArgLen;
use seccompiler::SeccompCmpOp;
use seccompiler::SeccompCondition;
use seccompiler::SeccompFilter;
use seccompiler::SeccompRule;

use crate::Refused;

/// Refuses the calls of the list to this thread and those that it starts, and that any of them
/// gains rights by executing a file (no_new_privs).
///
/// # Errors
/// The kernel has no seccomp, or does not let this process use it.
pub fn refuse_calls() -> Result<(), Refused> {
    let programs = programs().map_err(seccompiler::Error::from)?;
    for program in programs {
        seccompiler::apply_filter(&program)?;
    }
    Ok(())
}

/// One for each answer.
fn programs() -> Result<[BpfProgram; 2], BackendError> {
    let eperm = u32::try_from(libc::EPERM).unwrap_or(1);
    let enosys = u32::try_from(libc::ENOSYS).unwrap_or(38);
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in NEVER.iter().chain(NEVER_HERE) {
        refused.insert(*call, Vec::new());
    }
    // New processes, too.
    let clones = iter::once(flag(libc::CLONE_THREAD, false)).chain(spaces());
    refused.insert(libc::SYS_clone, clones.collect::<Result<_, _>>()?);
    refused.insert(libc::SYS_unshare, spaces().collect::<Result<_, _>>()?);
    // What it asks for lies in memory, where no filter sees it: the C library then calls clone.
    let unseen = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let (refused, unseen) = (with_x32(refused), with_x32(unseen));
    Ok([program(refused, eperm)?, program(unseen, enosys)?])
}

fn program(
    refused: BTreeMap<i64, Vec<SeccompRule>>,
    errno: u32,
) -> Result<BpfProgram, BackendError> {
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(refused, SeccompAction::Allow, SeccompAction::Errno(errno), arch)?.try_into()
}

/// A name space of its own, whichever it is.
fn spaces() -> impl Iterator<Item = Result<SeccompRule, BackendError>> {
    SPACES.iter().map(|space| flag(*space, true))
}

/// Calls whose first argument has this flag, or has it not.
fn flag(flag: libc::c_int, is: bool) -> Result<SeccompRule, BackendError> {
    let mask = u64::from(flag.unsigned_abs());
    let (operator, value) = (SeccompCmpOp::MaskedEq(mask), if is { mask } else { 0 });
    let asks = SeccompCondition::new(0, SeccompCmpArgLen::Qword, operator, value)?;
    SeccompRule::new(vec![asks])
}

/// The same by the numbers of the x32 ABI, which is another door to the same calls.
fn with_x32(refused: BTreeMap<i64, Vec<SeccompRule>>) -> BTreeMap<i64, Vec<SeccompRule>> {
    if !cfg!(target_arch = "x86_64") {
        return refused;
    }
    let own = X32_OWN.iter().map(|call| (X32 | call, Vec::new()));
    let again = refused.clone().into_iter().map(|(call, rules)| (X32 | call, rules));
    refused.into_iter().chain(again.collect::<Vec<_>>()).chain(own).collect()
}

const SPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// The bit that says x32.
const X32: i64 = 0x4000_0000;

/// Those that have a number of their own there: execve, ptrace, kexec_load, process_vm_readv,
/// process_vm_writev, execveat.
const X32_OWN: [i64; 6] = [520, 521, 528, 539, 540, 545];

const NEVER: &[i64] = &[
    // Programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // What is where.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_mknodat,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_fanotify_init,
    // Who it is.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // The kernel, and much of its history of weaknesses.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
];

#[cfg(target_arch = "x86_64")]
const NEVER_HERE: &[i64] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_mknod,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
    libc::SYS__sysctl,
];
#[cfg(not(target_arch = "x86_64"))]
const NEVER_HERE: &[i64] = &[];

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A filter is put on a thread that ends.
    fn under_the_filter<T: Send>(does: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                refuse_calls().expect("this kernel has seccomp");
                does()
            });
            there.join().expect("it goes on")
        })
    }

    fn status(field: &str) -> String {
        let text = std::fs::read_to_string("/proc/thread-self/status").expect("a status");
        let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("a field");
        line.trim().to_owned()
    }

    #[test]
    fn it_holds_for_the_thread_and_for_those_that_it_starts() {
        let held = || (status("Seccomp:"), status("NoNewPrivs:"));
        let both = under_the_filter(|| {
            let later = std::thread::spawn(held).join().expect("threads can be started");
            (held(), later)
        });
        let on = || ("2".to_owned(), "1".to_owned());
        assert_eq!(both, (on(), on()));
    }

    #[test]
    fn no_program_is_started() {
        let error = under_the_filter(|| Command::new("/bin/true").status());
        let error = error.expect_err("it is not started");
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        assert!(Command::new("/bin/true").status().is_ok(), "other threads go on");
    }

    #[test]
    fn the_root_stays_where_it_is() {
        let error = under_the_filter(|| std::os::unix::fs::chroot("/"));
        assert_eq!(error.expect_err("nobody may").raw_os_error(), Some(libc::EPERM));
    }

    /// Not even by an ABI that has numbers of its own.
    #[test]
    fn no_call_has_a_second_door() {
        if !cfg!(target_arch = "x86_64") {
            return;
        }
        let refused = with_x32(BTreeMap::from([(libc::SYS_execve, Vec::new())]));
        for call in [libc::SYS_execve, X32 | libc::SYS_execve, X32 | 520, X32 | 545] {
            assert!(refused.contains_key(&call), "{call:#x}");
        }
    }

    #[test]
    fn what_a_daemon_does_goes_on() {
        under_the_filter(|| {
            let folder = tempfile::tempdir().expect("a folder");
            std::fs::write(folder.path().join("file"), b"x").expect("a file");
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("it has one");
            std::net::TcpStream::connect(address).expect("it is reached");
        });
    }
}
