package archive

import (
	"cmp"
	"context"
	"io"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/collect"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/checks/redact"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/document"
)

// Write collects the evidence of in, which needs no Version and no Relist, into an archive of a format, of at most
// `most` bytes, within ctx. It returns the manifest, which lists vital parts that are missing or cut as problems, and
// the number of bytes written. If that is not 0, the archive can be read even with an error.
func Write(
	ctx context.Context, env cli.Env, out io.Writer, format string, most int64, level redact.Level, in collect.Input,
) (*bundle.Manifest, int64, error) {
	series := *in.Facts
	series.Limits = checks.RuntimeLimits()
	in.Version, in.Relist = cli.Version(), judge.NewRelistBenchmark(document.Header(env, "relist", ""), &series)
	host, _ := env.Hostname() // empty where there is none
	w, err := bundle.NewWriter(out, bundle.Options{
		Format: format, MaxBytes: most, Redact: level, Now: env.Now,
		Redactor: redact.New(level, append(collect.Names(in.Facts), host)),
	})
	if err != nil {
		return nil, 0, err
	}
	failed, err := collect.Run(ctx, in, w)
	header := document.Header(env, "bundle", bundle.KindManifest)
	header.Status = checks.Healthy
	if len(failed) > 0 {
		header.Status = checks.Degraded
		header.Problems = append(header.Problems, "not collected: "+strings.Join(failed, ", "))
	}
	manifest, errClose := w.Close(header)
	err = cmp.Or(errClose, err)
	problems := lost(manifest)
	if err != nil {
		problems = append(problems, err.Error()+"; what was written before can be read")
	}
	if len(problems) > 0 { // not in the archive, which is closed
		manifest.Status, manifest.Problems = checks.Degraded, append(manifest.Problems, problems...)
	}
	return manifest, w.Bytes(), err
}

// lost lists the files of an archive that are cut, and the vital ones that are missing.
func lost(m *bundle.Manifest) (problems []string) {
	there := map[string]bool{}
	for _, f := range m.Files {
		there[f.Path] = true
		if f.Cut != "" {
			problems = append(problems, f.Path+" is cut: "+f.Cut)
		}
	}
	for _, name := range []string{bundle.ReportName, bundle.FactsName} {
		if !there[name] {
			problems = append(problems, name+" is missing")
		}
	}
	return problems
}
