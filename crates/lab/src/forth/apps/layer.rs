// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which layer of the kernel a function belongs to, by its name.

/// A layer of the kernel, from the application's calls down to the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    FileSystem,
    PageCache,
    Block,
    /// What makes a file of the disk for the loop device.
    Fuse,
    Network,
    Interrupts,
    /// Calls themselves, scheduling, memory.
    Other,
}

impl Layer {
    pub(crate) const ALL: [Self; 7] = [
        Self::FileSystem,
        Self::PageCache,
        Self::Block,
        Self::Fuse,
        Self::Network,
        Self::Interrupts,
        Self::Other,
    ];

    /// Of a function and those that called it, from the innermost outwards: the first one whose
    /// name says it, as copying, locking and memory serve whoever calls for them. None: the
    /// processor was idle.
    pub(super) fn of<'a>(functions: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        for function in functions {
            let name = function.trim_start_matches('_');
            if IDLE.iter().any(|begin| name.starts_with(begin)) {
                return None;
            }
            let is_of =
                |(_, begins): &&(Self, &[&str])| begins.iter().any(|begin| name.starts_with(begin));
            if let Some((layer, _)) = LAYERS.iter().find(is_of) {
                return Some(*layer);
            }
        }
        Some(Self::Other)
    }
}

/// How functions begin, without underscores before, in which a processor waits for work.
const IDLE: [&str; 6] = [
    "pv_native_safe_halt",
    "default_idle",
    "cpuidle_",
    "cpu_startup_entry",
    "mwait_idle",
    "do_idle",
];

/// How functions of each layer begin, without underscores before; the first that fits counts.
const LAYERS: [(Layer, &[&str]); 6] = [
    // Before those whose names are shorter.
    (Layer::Fuse, &["fuse_"]),
    (
        Layer::PageCache,
        &[
            "filemap_",
            "page_cache_",
            "folio_mark_",
            "generic_file_read",
            "generic_perform_write",
            "mpage_read",
            "read_pages",
            "readahead_",
            "ondemand_readahead",
            "force_page_cache",
            "invalidate_mapping",
            "invalidate_inode_page",
            "truncate_inode_page",
            "mapping_",
            "balance_dirty_pages",
            "writeback_iter",
        ],
    ),
    (
        Layer::Block,
        &[
            "blk_",
            "blkdev_",
            "blkcg_",
            "bio_",
            "submit_bio",
            "bdev_",
            "dd_",
            "bfq_",
            "kyber_",
            "elv_",
            "loop_",
            "lo_",
            "sbitmap_",
            "virtblk_",
            "virtio_queue_rq",
            "nvme_",
            "scsi_",
            "sd_",
            "ata_",
            "dm_",
        ],
    ),
    (
        Layer::Network,
        &[
            "tcp_",
            "inet_",
            "inet6_",
            "ip_",
            "ip6_",
            "ipv4_",
            "sock_",
            "sk_",
            "skb_",
            "alloc_skb",
            "kfree_skb",
            "consume_skb",
            "build_skb",
            "napi_",
            "net_",
            "netif_",
            "dev_hard_start_xmit",
            "dev_queue_xmit",
            "loopback_",
            "process_backlog",
            "release_sock",
            "lock_sock",
            "validate_xmit",
            "nf_",
            "sys_send",
            "sys_recv",
        ],
    ),
    (
        Layer::FileSystem,
        &[
            "ext4_",
            "jbd2_",
            "iomap_",
            "vfs_",
            "ksys_read",
            "ksys_write",
            "ksys_pread",
            "ksys_pwrite",
            "path_",
            "link_path_walk",
            "lookup_",
            "walk_component",
            "do_filp_open",
            "do_sys_open",
            "do_unlinkat",
            "do_mkdirat",
            "filename_",
            "getname",
            "d_",
            "dput",
            "dentry_",
            "iput",
            "evict",
            "inode_",
            "new_inode",
            "iget",
            "buffer_",
            "block_",
            "bread",
            "getblk",
            "find_get_block",
            "mark_buffer_dirty",
            "mark_inode_dirty",
            "sync_dirty_buffer",
            "writeback_sb",
            "writeback_single",
            "writeback_inodes",
            "wb_",
            "file_write_and_wait",
            "file_update_time",
            "do_writepages",
            "fput",
            "dquot_",
        ],
    ),
    (
        Layer::Interrupts,
        &[
            "sysvec_",
            "asm_sysvec_",
            "common_interrupt",
            "asm_common_interrupt",
            "handle_softirqs",
            "do_softirq",
            "irq_",
            "handle_irq",
            "handle_edge_irq",
            "hrtimer_interrupt",
            "hrtimer_run",
            "run_timer_softirq",
            "run_ksoftirqd",
            "tick_",
            "rcu_core",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_that_says_it_counts() {
        for (functions, layer) in [
            // What a call of a program does, as the kernel (6.18) tells it.
            ("memcpy ext4_da_write_end generic_perform_write vfs_write", Layer::FileSystem),
            ("_copy_to_iter copy_folio_to_iter filemap_read ext4_file_read_iter", Layer::PageCache),
            ("_raw_spin_lock __blk_mq_sched_dispatch_requests blk_mq_run_hw_queue", Layer::Block),
            ("lo_rw_aio.isra.0 loop_process_work process_one_work worker_thread", Layer::Block),
            ("_copy_to_iter fuse_copy_do fuse_dev_do_read vfs_read ksys_read", Layer::Fuse),
            (
                "rep_movs_alternative _copy_from_iter tcp_sendmsg_locked sock_sendmsg",
                Layer::Network,
            ),
            ("tcp_v4_rcv __netif_receive_skb_core process_backlog handle_softirqs", Layer::Network),
            ("hrtimer_interrupt __sysvec_apic_timer_interrupt default_idle", Layer::Interrupts),
            ("clear_page_erms get_page_from_freelist do_anonymous_page", Layer::Other),
            ("entry_SYSCALL_64_after_hwframe", Layer::Other),
        ] {
            assert_eq!(Layer::of(functions.split(' ')), Some(layer), "{functions}");
        }
        assert_eq!(Layer::of(["pv_native_safe_halt", "default_idle", "do_idle"]), None);
        assert_eq!(Layer::of([]), Some(Layer::Other));
    }

    #[test]
    fn no_name_is_in_two_layers() {
        let all = LAYERS.iter().flat_map(|(_, begins)| begins.iter()).chain(&IDLE);
        let all: Vec<&&str> = all.collect();
        for (at, one) in all.iter().enumerate() {
            let other = all
                .iter()
                .enumerate()
                .find(|(other, begin)| *other != at && one.starts_with(**begin));
            assert!(other.is_none(), "{one} is {other:?}, too");
            assert!(!one.starts_with('_'), "{one}");
        }
    }
}
