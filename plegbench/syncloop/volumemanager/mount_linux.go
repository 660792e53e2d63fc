package volumemanager

import "golang.org/x/sys/unix"

func (kernel) tmpfs(dir, options string) error { return unix.Mount("tmpfs", dir, "tmpfs", 0, options) }

func (kernel) unmount(dir string) error { return unix.Unmount(dir, unix.UMOUNT_NOFOLLOW) }
