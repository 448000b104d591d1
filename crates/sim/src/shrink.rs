// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes a failing system smaller as long as it fails.

use crate::options::Options;
use crate::run::run;

/// The smallest system found that still fails, and how. None: `options` do not fail.
///
/// Another failure on the way is as good: there is one defect at the least.
#[must_use]
pub fn shrink(options: &Options) -> Option<(Options, String)> {
    let mut best = options.clone();
    let mut failure = run(&best, false).failure?;
    loop {
        let smaller = candidates(&best).into_iter().find_map(|candidate| {
            let failure = run(&candidate, false).failure?;
            Some((candidate, failure))
        });
        match smaller {
            Some(found) => (best, failure) = found,
            None => return Some((best, failure)),
        }
    }
}

/// Systems that are a little smaller, the much smaller ones first.
fn candidates(options: &Options) -> Vec<Options> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut Options)| {
        let mut candidate = options.clone();
        change(&mut candidate);
        all.push(candidate);
    };
    let faults = options.faults.len();
    if faults > 1 {
        add(&|candidate| candidate.faults.truncate(faults / 2));
        add(&|candidate| drop(candidate.faults.drain(..faults / 2)));
    }
    for host in 0..options.hosts.len() {
        if options.hosts.len() > 1 {
            add(&|candidate| drop(candidate.hosts.remove(host)));
        }
        let sessions = options.hosts[host].len();
        for session in 0..sessions {
            if sessions > 1 {
                add(&|candidate| {
                    let _ = candidate.hosts[host].remove(session);
                });
            }
            if options.hosts[host][session].operations > 1 {
                add(&|candidate| candidate.hosts[host][session].operations /= 2);
            }
            if options.hosts[host][session].depth > 1 {
                add(&|candidate| candidate.hosts[host][session].depth /= 2);
            }
        }
    }
    for target in 0..options.targets.len() {
        if options.targets[target].elsewhere.is_some() {
            add(&|candidate| candidate.targets[target].elsewhere = None);
        }
    }
    for target in 0..options.targets.len() {
        if options.targets[target].reactors.is_some() {
            add(&|candidate| candidate.targets[target].reactors = None);
        }
    }
    for impostor in 0..options.impostors.len() {
        add(&|candidate| {
            let _ = candidate.impostors.remove(impostor);
        });
    }
    for hog in 0..options.hogs.len() {
        add(&|candidate| {
            let _ = candidate.hogs.remove(hog);
        });
    }
    for hasty in 0..options.hasty.len() {
        add(&|candidate| {
            let _ = candidate.hasty.remove(hasty);
        });
    }
    for rogue in 0..options.rogues.len() {
        add(&|candidate| {
            let _ = candidate.rogues.remove(rogue);
        });
    }
    for resize in 0..options.resizes.len() {
        add(&|candidate| {
            let _ = candidate.resizes.remove(resize);
        });
    }
    for limit in 0..options.limits.len() {
        add(&|candidate| {
            let _ = candidate.limits.remove(limit);
        });
    }
    for fault in 0..faults {
        add(&|candidate| {
            let _ = candidate.faults.remove(fault);
        });
    }
    all
}
