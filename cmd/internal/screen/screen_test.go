package screen

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestShow interrupts work that takes a minute to end. The terminal is restored at once. TestView of package app has
// the key that ends it, and a real terminal.
func TestShow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithTimeout(t.Context(), 3*time.Second)
		defer leave()
		var out, stderr strings.Builder
		echo := false
		s := &Screen{
			out: &out, err: &stderr, keys: strings.NewReader("x"),
			size: func() (int, int, error) { return 0, 2, nil },
			mute: func() func() { return func() { echo = true } },
		}
		draw := func(int, int) []string { return []string{"first", "second", "below the screen"} }
		_ = s.Show(ctx, leave, draw, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Minute)
			synctest.Wait()
			if !echo || !strings.HasSuffix(out.String(), leaveScreen) {
				t.Errorf("the terminal is not restored while the work ends: %q", out.String())
			}
			return nil
		})
		if !strings.HasPrefix(out.String(), enterScreen+"\x1b[Hfirst\x1b[K\r\nsecond\x1b[K\x1b[J\x1b[H") ||
			!strings.Contains(stderr.String(), "Ctrl-C, twice, ends at once") {
			t.Errorf("drawn %q; stderr %q", out.String(), stderr.String())
		}
	})
}
