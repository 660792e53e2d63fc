package collect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/safefile"
)

// readFile reads at most so many bytes of a file of the host. Its folder may be reached through links, as on MicroK8s
// and NixOS. The file itself may be a link only to a file below the same folder, as volumes of configurations have
// them: pods write into some of these folders (CNI), and a link to /etc/shadow must not end in a bundle.
func readFile(seen crictl.HostFiles, path string, most int64) (text []byte, _ error) {
	dir, name := filepath.Split(path)
	err := seen.Look(dir, func(folder string) error {
		f, err := openBelow(folder, name)
		if err != nil {
			return err
		}
		defer f.Close() // was only read
		text, err = io.ReadAll(io.LimitReader(f, most))
		return err
	})
	return text, err
}

// openBelow opens a regular file below a folder. A FIFO does not block.
func openBelow(folder, name string) (*os.File, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := safefile.Regular(root.OpenFile(name, safefile.Flags, 0))
	if err != nil {
		if to, _ := root.Readlink(name); to != "" && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("is a link to %q, which is not followed out of its folder", to)
		}
	}
	return f, err
}

// list returns the paths of the files of a folder whose names match a pattern, sorted; none where it does not exist.
func list(seen crictl.HostFiles, dir, pattern string) (paths []string, _ error) {
	entries, err := seen.List(dir)
	if err != nil && err.Error() == crictl.Absent {
		return nil, nil
	}
	for _, e := range entries {
		match, _ := filepath.Match(pattern, e.Name()) // a bad pattern matches nothing
		if match && !e.IsDir() && len(paths) < mostConfigs {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, err
}
