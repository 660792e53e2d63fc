package reproducecmd

import (
	"context"
	"sync"
	"time"

	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/screen"
	"github.com/kdiag/kdiag/plegbench/syncloop"
	"github.com/kdiag/kdiag/plegbench/syncloop/reproduce"
)

// A view shows a run in the terminal.
type view struct {
	opts render.Options

	mu    sync.Mutex
	story render.Story
	loop  *syncloop.SyncLoop // nil before there is one
}

// play plays a scenario and shows it, until the person at the terminal leaves; the verdict stays on the screen.
func (v *view) play(
	ctx context.Context, leave func(), s *screen.Screen, cfg reproduce.Config,
) (report *reproduce.Report, err error) {
	v.story = render.Story{Scenario: cfg.Scenario, Endpoint: cfg.Endpoint, Speed: cfg.Speed}
	cfg.Notify = func(e reproduce.Event) {
		v.set(func() { v.story.Events = append(v.story.Events, e) })
	}
	cfg.Made = func(loop *syncloop.SyncLoop) {
		v.set(func() { v.loop = loop })
	}
	err = s.Show(ctx, leave, v.draw, func(ctx context.Context) error {
		var err error
		if report, err = reproduce.Run(ctx, cfg); err != nil {
			return err
		}
		v.set(func() { v.story.Report = &render.ReproductionReport{Report: report} })
		<-ctx.Done()
		return nil
	})
	return report, err
}

func (v *view) set(change func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change()
}

func (v *view) draw(width, height int) []string {
	v.mu.Lock()
	story, loop := v.story, v.loop
	v.mu.Unlock()
	shown := render.LoopView{Now: time.Now(), Story: &story}
	if loop != nil { // not under the lock: whoever reports an event may hold one of the syncLoop's
		shown.Snapshot = loop.Snapshot()
	}
	return shown.Draw(width, height, v.opts)
}
