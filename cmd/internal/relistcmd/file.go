package relistcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/internal/cli"
)

// maxSaved bounds a saved result: a week of samples is less.
const maxSaved = 256 << 20

// load reads what --save wrote. An empty name is no file.
func load(name string) (*checks.RelistBenchmark, error) {
	if name == "" {
		return nil, nil
	}
	bad := func(problem string) error {
		return &cli.UsageError{
			Problem: "--against " + problem,
			Hint:    "kdiag relist --save FILE writes such a file",
		}
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, bad(err.Error())
	}
	if !info.Mode().IsRegular() || info.Size() > maxSaved {
		return nil, bad(name + ": not a saved result")
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, bad(err.Error())
	}
	var saved checks.RelistBenchmark
	if err := json.Unmarshal(data, &saved); err != nil {
		return nil, bad(fmt.Sprintf("%s: %v", name, err))
	}
	if saved.APIVersion != checks.APIVersion || saved.Kind != "RelistBenchmark" {
		return nil, bad(fmt.Sprintf("%s: apiVersion %q kind %q, want %s RelistBenchmark", name, saved.APIVersion, saved.Kind, checks.APIVersion))
	}
	return &saved, nil
}

// A destination is where a result will be saved. It is opened before anything is measured, so that an hour of samples
// is not lost to a folder that cannot be written.
type destination struct {
	path   string // what will be replaced, links followed
	exists bool
	tmp    *os.File
}

// open prepares for saving to name. What is there and is no file, a device above all, is never replaced.
func open(name string) (*destination, error) {
	bad := func(problem string) error {
		return &cli.UsageError{Problem: "--save " + problem, Hint: "name a file in a folder that you may write to"}
	}
	d := &destination{path: name}
	switch info, err := os.Stat(name); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, bad(err.Error())
	case !info.Mode().IsRegular():
		return nil, bad(name + " is there and is no regular file")
	default:
		d.exists = true
	}
	if target, err := filepath.EvalSymlinks(name); err == nil {
		d.path = target
	}
	tmp, err := os.CreateTemp(filepath.Dir(d.path), ".kdiag-*")
	if err != nil {
		return nil, bad(err.Error())
	}
	d.tmp = tmp
	return d, nil
}

// save writes a result so that a reader sees the old file or the whole new one, never a part.
func (d *destination) save(bench *checks.RelistBenchmark) error {
	data, err := json.MarshalIndent(bench, "", "  ")
	if err == nil {
		_, err = d.tmp.Write(append(data, '\n'))
	}
	if closeErr := d.tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(d.tmp.Name(), d.path)
	}
	if err != nil {
		return &cli.HintError{
			Err: fmt.Errorf("saving to %s: %w", d.path, err), Code: cli.ExitUnknown,
			Hint: "the result above is all there is",
		}
	}
	return nil
}

// close removes what save did not turn into a file.
func (d *destination) close() {
	_ = d.tmp.Close()
	_ = os.Remove(d.tmp.Name())
}
