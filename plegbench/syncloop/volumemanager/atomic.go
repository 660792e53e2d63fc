package volumemanager

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"strings"
	"time"
)

// Names inside a volume of files (pkg/volume/util/atomic_writer.go upstream). The files themselves are in a folder with the
// time of writing in its name; dataLink points there, and everything that a container sees leads through dataLink. To
// rename another link over it changes all files at once.
const (
	dataLink    = "..data"
	newDataLink = "..data_tmp"
	stampFormat = "..2006_01_02_15_04_05."
)

// Limits of a path in a volume, in bytes.
const (
	maxPath = 4096
	maxName = 255
)

// write makes the volume at root hold the payload, in one instant. own is called when all new files are there but not
// visible yet. If the files are as they should be, nothing is written.
func write(root *os.Root, p payload, own func() error) error {
	clean := payload{}
	for name, f := range p {
		if err := validPath(name); err != nil {
			return err
		}
		clean[path.Clean(name)] = f
	}
	old, err := root.Readlink(dataLink)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	gone, same := compare(root, old, clean)
	if !same {
		if err := swap(root, clean, own); err != nil {
			return err
		}
	}
	for name := range clean {
		top, _, _ := strings.Cut(name, "/")
		if err := root.Symlink(path.Join(dataLink, top), top); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	for _, name := range gone {
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if !same && old != "" {
		return root.RemoveAll(old)
	}
	return nil
}

func validPath(name string) error {
	if name == "" || path.IsAbs(name) || len(name) > maxPath || path.Clean(name) == "." {
		return fmt.Errorf("invalid path %.80q: it must be relative and no longer than %d bytes", name, maxPath)
	}
	for _, part := range strings.Split(name, "/") {
		if part == ".." || len(part) > maxName {
			return fmt.Errorf("invalid path %.80q: no part of it may be '..' or longer than %d bytes", name, maxName)
		}
	}
	if strings.HasPrefix(path.Clean(name), "..") {
		return fmt.Errorf("invalid path %.80q: it must not start with '..'", name)
	}
	return nil
}

// compare says whether the files below old are those of the payload, and what stands at the volume's top without being
// in the payload any more.
func compare(root *os.Root, old string, p payload) (gone []string, same bool) {
	if old == "" {
		return nil, false
	}
	tops := map[string]bool{}
	for name := range p {
		top, _, _ := strings.Cut(name, "/")
		tops[top] = true
	}
	found := 0
	same = true
	err := fs.WalkDir(root.FS(), old, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == old {
			return err
		}
		name = strings.TrimPrefix(name, old+"/")
		if !strings.Contains(name, "/") && !tops[name] {
			gone = append(gone, name)
		}
		if d.IsDir() {
			return nil
		}
		want, ok := p[name]
		have, err := root.ReadFile(path.Join(old, name))
		same = same && ok && err == nil && bytes.Equal(want.data, have)
		found++
		return nil
	})
	return gone, same && err == nil && found == len(p)
}

// swap writes the payload into a new folder and makes dataLink point there.
func swap(root *os.Root, p payload, own func() error) (err error) {
	stamp := fmt.Sprintf("%s%d", time.Now().UTC().Format(stampFormat), rand.Uint32())
	if err := root.Mkdir(stamp, 0o755); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, root.RemoveAll(stamp))
		}
	}()
	if err := root.Chmod(stamp, 0o755); err != nil { // whatever the umask is
		return err
	}
	for name, f := range p {
		if err := writeFile(root, path.Join(stamp, name), f); err != nil {
			return err
		}
	}
	if err := own(); err != nil {
		return err
	}
	if err := root.Remove(newDataLink); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a writer that died halfway
		return err
	}
	if err := root.Symlink(stamp, newDataLink); err != nil {
		return err
	}
	return root.Rename(newDataLink, dataLink)
}

func writeFile(root *os.Root, name string, f file) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	mode := os.FileMode(f.mode).Perm()
	if err := root.WriteFile(name, f.data, mode); err != nil {
		return err
	}
	if err := root.Chmod(name, mode); err != nil {
		return err
	}
	if f.user == nil {
		return nil
	}
	return root.Lchown(name, int(*f.user), -1)
}

// ownAll gives a volume to a group: what is in it belongs to the group and can be read by it, and written if that is meant;
// new files in its folders belong to the group too (pkg/volume/volume_linux.go upstream). Links are left as they are.
func ownAll(root *os.Root, group *int64, writable bool) error {
	if group == nil {
		return nil
	}
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := root.Lchown(name, -1, int(*group)); err != nil {
			return err
		}
		if d.Type()&fs.ModeSymlink != 0 {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := info.Mode() | 0o440
		if writable {
			mode |= 0o220
		}
		if d.IsDir() {
			mode |= os.ModeSetgid | 0o110
		}
		return root.Chmod(name, mode.Perm()|mode&(os.ModeSetuid|os.ModeSetgid|os.ModeSticky))
	})
}
