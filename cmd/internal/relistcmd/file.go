package relistcmd

import (
	"encoding/json"
	"fmt"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/internal/cli"
)

// maxSaved bounds a saved result: a week of samples is less.
const maxSaved = 256 << 20

// load reads a file of --save. It returns nil for an empty name.
func load(name string) (*checks.RelistBenchmark, error) {
	if name == "" {
		return nil, nil
	}
	saved := &checks.RelistBenchmark{}
	data, err := cli.ReadFile(name, maxSaved)
	if err == nil {
		err = json.Unmarshal(data, saved)
	}
	if err == nil && (saved.APIVersion != checks.APIVersion || saved.Kind != checks.KindRelistBenchmark) {
		err = fmt.Errorf("%s: apiVersion %q kind %q, want %s %s", name, saved.APIVersion, saved.Kind,
			checks.APIVersion, checks.KindRelistBenchmark)
	}
	if err != nil {
		return nil, cli.Usage("--against "+err.Error(), "kdiag relist --save FILE writes such a file")
	}
	return saved, nil
}
