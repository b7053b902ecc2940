# From the samples of `perf script` (comm and pid, then frames from the innermost outwards, then an empty line) a table of processor time by process and
# kind of work, in seconds per unit. Set: units, rate (samples a second), stores and meta and mount (process numbers). What is idle is left out.

BEGIN {
    split(stores, list, " ")
    for (n in list) who[list[n]] = "stores"
    who[meta] = "metadata"
    who[mount] = "mount"
    columns = split("program mount stores metadata kernel", column, " ")
    rows = split("copies of file pages|copies through FUSE|copies into sockets|copies out of sockets|copies in the process|checksums|coding|TCP/IP|FUSE|files and disk|waiting and waking|memory|entering the kernel|the rest", row, "|")
}

NF == 0 { settle(); next }
depth == 0 && !header {
    pid = $NF
    comm = $1
    header = 1
    next
}
{
    depth++
    symbol = $2
    for (n = 3; n <= NF; n++) symbol = symbol " " $n
    if (depth == 1) leaf = symbol
    stack = stack " " symbol
}
END { settle(); print_table() }

function kind() {
    if (leaf ~ /crc|Crc|checksum/) return "checksums"
    if (leaf ~ /^<?gf::/) return "coding"
    if (leaf ~ /memmove|memcpy|copy_to_iter|copy_from_iter|copy_user|copy_folio|copy_page|rep_movs/) {
        if (stack ~ /fuse_dev|fuse_copy/) return "copies through FUSE"
        if (stack ~ /tcp_sendmsg/) return "copies into sockets"
        if (stack ~ /tcp_recvmsg|skb_copy_datagram/) return "copies out of sockets"
        if (stack ~ /fuse_|filemap_read|read_zero|copy_folio/) return "copies of file pages"
        return "copies in the process"
    }
    if (stack ~ /tcp_|inet_|sock_|net_rx|__dev_queue_xmit|ip_output/ && stack !~ /schedule|futex/) return "TCP/IP"
    if (stack ~ /schedule|futex|epoll|try_to_wake_up|eventfd/) return "waiting and waking"
    if (stack ~ /ext4|iomap|blk_|bio_|submit_bio|jbd2|virtio|virtblk|vfs_fsync|filemap_get_pages/) return "files and disk"
    if (stack ~ /fuse_/) return "FUSE"
    if (stack ~ /page_fault|clear_page|alloc_pages|do_mmap|munmap|madvise|folio/) return "memory"
    if (stack ~ /entry_SYSCALL|do_syscall|syscall/) return "entering the kernel"
    return "the rest"
}

function settle(    by, what) {
    if (header && depth > 0 && comm !~ /^(perf|perf-exec)$/ && !(comm == "swapper" && stack ~ /idle|halt|mwait/ && stack !~ /softirq|hardirq|_interrupt/)) {
        by = (pid in who) ? who[pid] : (comm ~ /^(kworker|ksoftirqd|jbd2|swapper|kcompactd|kswapd|rcu)/) ? "kernel" : "program"
        what = kind()
        time[what, by]++
        total[by]++
        sum[what]++
        all++
    }
    depth = 0
    header = 0
    stack = ""
}

function figure(samples) { return samples ? sprintf("%.2f", samples / rate / units) : "" }

function print_table(    r, c) {
    printf "  %-24s", ""
    for (c = 1; c <= columns; c++) printf "%10s", column[c]
    printf "%10s\n", "all"
    for (r = 1; r <= rows; r++) {
        if (!sum[row[r]]) continue
        printf "  %-24s", row[r]
        for (c = 1; c <= columns; c++) printf "%10s", figure(time[row[r], column[c]])
        printf "%10s\n", figure(sum[row[r]])
    }
    printf "  %-24s", "all"
    for (c = 1; c <= columns; c++) printf "%10s", figure(total[column[c]])
    printf "%10s\n", figure(all)
}
