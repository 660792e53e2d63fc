package volumemanager

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func (kernel) tmpfs(dir, options string) error { return unix.Mount("tmpfs", dir, "tmpfs", 0, options) }

func (kernel) unmount(dir string) error { return unix.Unmount(dir, unix.UMOUNT_NOFOLLOW) }

func (kernel) bind(f *os.File, path string) error {
	return unix.Mount(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), path, "", unix.MS_BIND, "")
}
