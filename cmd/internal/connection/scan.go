package connection

import (
	"context"
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
)

// ScanTimeout bounds the scan of /proc: enough for tens of thousands of processes, and little beside an RPC deadline.
const ScanTimeout = 4 * time.Second

// A Scan is the one scan of /proc of a run, which goes on beside other work.
type Scan struct {
	done       chan struct{} // closed at the end
	population host.Population
	err        error
}

// StartScan starts the scan of the processes below root. A service passes the result of its scan before, else an empty
// one.
func StartScan(ctx context.Context, root string, before host.Population) *Scan {
	var names host.Names
	for _, in := range crictl.Installations() {
		names.Runtimes = append(names.Runtimes, in.Processes...)
		names.Shims = append(names.Shims, in.Shims...)
		names.DataDirs = append(names.DataDirs, in.DataDir)
		names.StateDirs = append(names.StateDirs, in.StateDir)
	}
	s := &Scan{done: make(chan struct{})}
	go func() {
		defer close(s.done)
		ctx, cancel := context.WithTimeout(ctx, ScanTimeout)
		defer cancel()
		s.population, s.err = deadline.Run(ctx, "listing the processes",
			func(ctx context.Context) (host.Population, error) {
				return host.ReadPopulation(ctx, root, names, before)
			})
	}()
	return s
}

// Wait returns the result of the scan, or the error of ctx if that ends first.
func (s *Scan) Wait(ctx context.Context) (host.Population, error) {
	select {
	case <-s.done:
		return s.population, s.err
	case <-ctx.Done():
		return host.Population{}, ctx.Err()
	}
}
