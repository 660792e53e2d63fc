package relistcmd

import (
	"encoding/json"
	"fmt"
	"os"

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
		return nil, bad(fmt.Sprintf("%s: apiVersion %q kind %q, want %s RelistBenchmark", name, saved.APIVersion,
			saved.Kind, checks.APIVersion))
	}
	return &saved, nil
}

// save writes a result to a file that was opened before the measurement.
func save(d *cli.Destination, bench *checks.RelistBenchmark) error {
	data, err := json.MarshalIndent(bench, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the result: %w", err)
	}
	return d.Write(append(data, '\n'))
}
