// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All tests of the wire in one program: one link in place of forty.
//!
//! What counts the allocations, descriptors or memory of its process stays a program of its own.

mod alua;
mod anchor;
mod asynchronous;
mod command;
mod connections;
mod copy;
mod data;
mod digest;
mod disks;
mod early;
mod esxi;
mod failure;
mod fences;
mod format;
mod hogs;
mod identity;
mod initiator_commands;
mod initiator_connections;
mod initiator_endurance;
mod initiator_face;
mod initiator_failover;
mod initiator_memory;
mod initiator_options;
mod initiator_overdue;
mod initiator_patience;
mod initiator_power;
mod initiator_recovery;
mod initiator_refusals;
mod initiator_residuals;
mod initiator_text;
mod inventory;
mod keeping;
mod lessons;
mod login;
mod logout;
mod management;
mod markers;
mod negotiation;
mod nop;
mod panic;
mod pressure;
mod protection;
mod reassign;
mod reject;
mod resend;
mod reservations;
mod resets;
mod snack;
mod tasksets;
mod text;
mod volumes;
mod windows;
