# Random writes of random sizes, read back and compared by checksum: with pwrite, with mmap and by two processes.
cd "$L"
common="--directory=$D --size=64m --verify=crc32c --do_verify=1 --verify_fatal=1 --verify_state_save=0 --minimal"
fio --name=pwrite --rw=randwrite --bsrange=4k-64k --ioengine=psync --fsync=64 $common
fio --name=unaligned --rw=randwrite --bsrange=512-64k --bs_unaligned=1 --ioengine=psync $common
fio --name=mmap --rw=randwrite --bs=4k --ioengine=mmap $common
fio --name=mixed --rw=randrw --bs=16k --ioengine=psync --numjobs=2 --group_reporting $common
fio --name=sequential --rw=write --bs=1m --ioengine=psync --end_fsync=1 $common
