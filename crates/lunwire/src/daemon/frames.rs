// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames past the network stack take a program in the kernel, which the sandbox refuses: they are
//! there before it is put on.

use std::io;

use anyhow::Result;
use anyhow::anyhow;
use target::Interface;
use target::Plan;
use target::Reserved;
use target::Way;

use super::sandboxed::Sandbox;
use crate::args::ServeOptions;
use crate::client;
use crate::plan::Draft;
use crate::plan::Wish;

/// What `draft` wants of them, if there is to be a sandbox.
///
/// # Errors
/// An interface cannot be had, or not before the process that is to be taken over lets go of it.
pub(crate) fn reserve(draft: &Draft, options: &ServeOptions) -> Result<Vec<Reserved>> {
    if draft.sandbox == Wish::No {
        return Ok(Vec::new());
    }
    prepare_disks(draft, options)?;
    let mut frames = Vec::new();
    for interface in &draft.ether {
        match (interface.way, Reserved::open) {
            (Way::Packet, _) => {}
            (Way::Xdp, open) => {
                frames.push(open(interface).map_err(|error| refused(interface, error, options))?);
            }
            // What is wrong is told when the target starts, as without a sandbox.
            (Way::Auto, open) => frames.extend(open(interface)),
        }
    }
    Ok(frames)
}

/// For disks of other targets, whose frames are ours, too.
fn prepare_disks(draft: &Draft, options: &ServeOptions) -> Result<()> {
    for url in draft.remote_disks() {
        // What is wrong with a URL is told when its disk is opened.
        let Ok(address) = client::disk_address(url) else { continue };
        for url in address.urls() {
            url.prepare_frames().map_err(|error| match error.kind() {
                io::ErrorKind::ResourceBusy if options.take_over => anyhow!(
                    "{url}: {error}; the process that is to be taken over has its frames; try: \
                     frames=packet in the URL, or stop that process first"
                ),
                _ => anyhow!("{url}: {error}"),
            })?;
        }
    }
    Ok(())
}

fn refused(interface: &Interface, source: io::Error, options: &ServeOptions) -> anyhow::Error {
    let is_in_use = source.kind() == io::ErrorKind::AddrInUse;
    let name = interface.name.clone();
    let error = target::Error::Ether { interface: name, source };
    match is_in_use && options.take_over {
        true => anyhow!(
            "{error}, and frames=xdp is opened before the sandbox is put on; try: --take-over \
             with --sandbox=no, or frames=packet"
        ),
        false => error.into(),
    }
}

/// Who serves again does so without interfaces that are gone, or that somebody else has yet, and
/// takes them when they come: other hosts do not wait for that.
pub(crate) fn await_missing(plan: &mut Plan) {
    let Plan { ether, frames, .. } = plan;
    for interface in ether.iter() {
        if frames.iter().any(|one| one.interface() == interface) {
            continue;
        }
        // Without descriptors for that, either, the error is told when the target starts.
        frames.extend(Reserved::open(interface).or_else(|why| {
            tracing::warn!(
                interface = interface.name, %why,
                "no frames are taken there; it is tried again each second"
            );
            Reserved::awaited(interface)
        }));
    }
}

/// Who serves again, in a sandbox, takes frames by packet sockets: hosts are served all the same.
pub(crate) fn without_rights(plan: &mut Plan, sandbox: &Sandbox) {
    let Plan { ether, frames, .. } = plan;
    let lacking = ether.iter_mut().filter(|interface| {
        interface.way != Way::Packet && frames.iter().all(|one| one.interface() != *interface)
    });
    if sandbox.refuses_calls() {
        for interface in lacking {
            let name = &interface.name;
            tracing::warn!(
                interface = name,
                "frames go by packet sockets: the sandbox (--sandbox) refuses others by now"
            );
            interface.way = Way::Packet;
        }
    }
}
