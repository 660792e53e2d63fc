package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// rotate makes room among a log's rotated files and rotates it. When two rounds fall into one second, the second waits for the
// next: its file would have the name of the first.
func (m *Manager) rotate(ctx context.Context, id, log, stamp string) error {
	entries, err := os.ReadDir(filepath.Dir(log))
	if err != nil {
		return fmt.Errorf("listing the rotated logs of %s: %w", log, err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(log)+".") {
			names = append(names, filepath.Join(filepath.Dir(log), e.Name()))
		}
	}
	rotated := log + "." + stamp
	if slices.Contains(names, rotated) || slices.Contains(names, rotated+gzipSuffix) {
		return nil
	}
	p := makePlan(names, m.MaxFiles)
	for _, name := range p.remove {
		if err := os.Remove(name); err != nil {
			return fmt.Errorf("removing an old log: %w", err)
		}
	}
	for _, name := range p.compress {
		if err := compress(name); err != nil {
			return fmt.Errorf("compressing log %s: %w", name, err)
		}
	}
	if err := os.Rename(log, rotated); err != nil {
		return fmt.Errorf("rotating log %s: %w", log, err)
	}
	if err := m.CRI.ReopenContainerLog(ctx, id); err != nil {
		// The runtime goes on writing to the renamed file, which gets its name back, to be tried again.
		return errors.Join(fmt.Errorf("failed to reopen container log %q: %w", id, err), os.Rename(rotated, log))
	}
	return nil
}

// compress puts a file, gzipped, in the place of another. Interrupted, it leaves a temporary file or both, which makePlan knows.
func compress(name string) (err error) {
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	tmp := name + unfinished
	out, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return err
	}
	zip := gzip.NewWriter(out)
	_, err = io.Copy(zip, in)
	if err = errors.Join(err, zip.Close(), out.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := os.Rename(tmp, name+gzipSuffix); err != nil {
		return err
	}
	return os.Remove(name)
}
