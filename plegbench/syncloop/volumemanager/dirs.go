package volumemanager

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

func (m *Manager) podDir(uid types.UID) string {
	return filepath.Join(m.cfg.RootDir, "pods", string(uid))
}

func (m *Manager) volumesDir(uid types.UID) string { return filepath.Join(m.podDir(uid), "volumes") }

// makeDataDirs makes the folders that each pod has, volumes or not.
func (m *Manager) makeDataDirs(uid types.UID) error {
	if !isName(string(uid)) {
		return fmt.Errorf("the pod's uid %q is no name of a folder", uid)
	}
	for _, dir := range []string{m.volumesDir(uid), filepath.Join(m.podDir(uid), "plugins")} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(m.podDir(uid), ownerMark), []byte(m.cfg.NodeName), 0o640)
}

// isName reports whether a name that came in from outside stays in the folder that it is joined to.
func isName(name string) bool {
	return filepath.IsLocal(name) && name == filepath.Base(name) && name != "."
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// makeDir makes a volume's folder, open to all as upstream's are: who may go there is decided above it. With k.memory it is
// a tmpfs of its own.
func makeDir(dir string, k kind) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o777); err == nil {
		if err := os.Chmod(dir, 0o777); err != nil { // whatever the umask is
			return err
		}
	} else if !errors.Is(err, os.ErrExist) {
		return err
	}
	if !k.memory || isMount(dir) {
		return nil
	}
	options := "noswap"
	if k.size > 0 {
		options += ",size=" + strconv.FormatInt(k.size, 10)
	}
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, options)
	if errors.Is(err, unix.EINVAL) { // noswap is known since Linux 6.4
		err = unix.Mount("tmpfs", dir, "tmpfs", 0, strings.TrimPrefix(strings.TrimPrefix(options, "noswap"), ","))
	}
	if err != nil {
		return &os.PathError{Op: "mounting a tmpfs", Path: dir, Err: err}
	}
	return nil
}

// isMount reports whether a tmpfs of its own is mounted at dir. Its device differs from that of the folder above.
func isMount(dir string) bool {
	var here, above unix.Stat_t
	if unix.Lstat(dir, &here) != nil || unix.Lstat(filepath.Dir(dir), &above) != nil {
		return false
	}
	return here.Dev != above.Dev
}

// A mountPoint is one line of /proc/self/mountinfo.
type mountPoint struct {
	path   string
	fstype string
}

// parseMountInfo reads lines like
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//
// of which it keeps the fifth field, with its octal escapes undone, and the file system's type.
func parseMountInfo(text string) []mountPoint {
	var out []mountPoint
	for line := range strings.Lines(text) {
		before, after, _ := strings.Cut(line, " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if len(fields) < 5 || len(rest) < 1 {
			continue
		}
		out = append(out, mountPoint{path: unescape(fields[4]), fstype: rest[0]})
	}
	return out
}

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// mountsBelow lists what is mounted at dir and below it, in the order of mounting.
func mountsBelow(dir string) ([]mountPoint, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	var out []mountPoint
	for _, mp := range parseMountInfo(string(text)) {
		if mp.path == dir || strings.HasPrefix(mp.path, dir+"/") {
			out = append(out, mp)
		}
	}
	return out, nil
}
