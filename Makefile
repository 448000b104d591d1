# SPDX-License-Identifier: Apache-2.0 OR MIT
# `make help` lists what there is. Everything works as root or not, on Debian 12 with rustup;
# Debian packages are installed only where a target needs them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
CARGO ?= cargo

.PHONY: help run build install install-lib pages deb wheel test test-long test-quick lint docs bench bench-crc bench-ceph fuzz proofs sim sim-long interop vm-test \
    clean

help: ## Lists the targets
	@awk -F ':.*## ' '/^[a-z-]*:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Builds lunwire and serves a disk of 1 GiB in memory on 127.0.0.1:3260
	@scripts/build
	@exec target/release/lunwire serve

build: ## Builds the release binary; its debug information stands beside it
	@scripts/build

install: ## Puts lunwire into ~/.local/bin, or into BINDIR
	@scripts/build "$${BINDIR:-$$HOME/.local/bin}"

install-lib: ## Installs liblunwire, its header and lunwire.pc below PREFIX (/usr/local); DESTDIR, LIBDIR
	@scripts/capi install --prefix "$${PREFIX:-/usr/local}" --destdir "$${DESTDIR:-}" --libdir "$${LIBDIR:-lib}"

pages: build ## Manual pages, and completions for bash, zsh and fish, below target/pages
	@packaging/debian/manuals target/release/lunwire \
	    "$$(target/release/lunwire --version | cut -d ' ' -f 2)" "$$(git log -1 --format=%cs)" target/pages

deb: build ## Makes a package for Debian with the unit for systemd, into target/deb
	@scripts/deb

wheel: ## Builds the Python package, with liblunwire in it, into target/wheel
	@scripts/wheel

test: ## Everything that must pass on the machine itself
	@scripts/test

test-long: ## What takes longer, in a virtual machine: kernel initiator, iSER, broken lines, LIO, sg3-utils
	@scripts/test long

test-quick: ## What needs neither foreign clients nor a virtual machine
	@scripts/test fmt tidy clippy docs unit-build unit compliance licences

lint: ## Formatting, our own rules, clippy
	@scripts/test fmt tidy clippy

docs: ## Documentation of all items, docs/COMPLIANCE.md and docs/SCSI.md
	$(CARGO) xtask compliance
	$(CARGO) xtask scsi
	@scripts/test docs

bench: build ## Speed beside tgt, libiscsi, the machine's limit; iSER beside TCP; attached disks; SPDK where it is; installs their packages; 15 minutes
	@interop/setup
	@status=0; for bench in run iser attach; do bench/$$bench --gate || status=1; done; exit $$status

bench-crc: ## CRC32C and copying with it, beside ISA-L, other crates and memcpy, about a minute
	@interop/setup --only libisal2
	@bench/crc/run

bench-ceph: build ## Images of Ceph beside librbd itself and tgt, about 4 minutes
	@interop/setup fio tgt-rbd
	@bench/ceph --gate

fuzz: ## Fuzzes each target with a new seed; SECONDS_EACH=30
	@SEED=$${SEED:-0} scripts/fuzz

proofs: ## Breaks each rule in a copy, and its tests must notice; ONLY="KEY SES-01" for some
	$(CARGO) xtask proofs $(ONLY)

sim: ## Simulates initiators and targets under faults for 60 seconds; SECONDS_SIM=60
	@scripts/sim $${SECONDS_SIM:-60}

sim-long: ## The same for an hour, or SECONDS_SIM
	@scripts/sim $${SECONDS_SIM:-3600}

interop: build ## libiscsi, QEMU, tgt, istgt, kill -9 and hostile input against a running server
	@scripts/test setup libiscsi paths qemu chap foreign-targets kill9 take-over reservations modes wipes bad-input \
	    login-flood discovery isns store-faults inventory boot

vm-test: build ## All that a virtual machine tests
	@scripts/test setup volumes passthrough kernel cable iser resets lio disk

clean: ## Removes what was built
	$(CARGO) clean
