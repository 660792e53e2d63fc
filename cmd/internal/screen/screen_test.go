package screen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestShow checks that the picture moves, and that the terminal is restored however the work ends.
func TestShow(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name string
		keys string // typed after two seconds
		work time.Duration
		slow time.Duration // what the work takes to end once it has to
		err  error
		want string // on standard error
	}{
		{"interrupted", "", time.Hour, time.Minute, nil, "kdiag: ending; Ctrl-C, twice, ends at once\n"},
		{"ends at once", "", time.Hour, 0, nil, ""},
		{"q", "x\x1b[Aq", time.Hour, 0, nil, ""},
		{"failed", "", 2 * time.Second, 0, broken, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, leave := context.WithTimeout(t.Context(), 3*time.Second)
				defer leave()
				keys, typed := io.Pipe()
				defer typed.Close()
				time.AfterFunc(2*time.Second, func() { _, _ = io.WriteString(typed, tt.keys) })
				var out, stderr strings.Builder
				turns, echo := 0, true
				s := &Screen{
					out: &out, err: &stderr, keys: keys,
					size: func() (int, int, error) { return 0, 2, nil },
					mute: func() func() {
						echo = false
						return func() { echo = true }
					},
				}
				draw := func(width, height int) []string {
					turns++
					return []string{fmt.Sprintf("turn %d, %dx%d", turns, width, height), "second", "below the screen"}
				}
				start := time.Now()
				err := s.Show(ctx, leave, draw, func(ctx context.Context) error {
					select {
					case <-time.After(tt.work):
						return tt.err
					case <-ctx.Done():
						time.Sleep(tt.slow)
						return tt.err
					}
				})
				if !errors.Is(err, tt.err) || !echo {
					t.Errorf("error %v, echo %t", err, echo)
				}
				if took := time.Since(start); tt.keys != "" && took != 2*time.Second {
					t.Errorf("it took %s", took)
				}
				got := out.String()
				if !strings.HasPrefix(got, enterScreen+"\x1b[Hturn 1, 80x2\x1b[K\r\nsecond\x1b[K\x1b[J\x1b[Hturn 2") ||
					!strings.HasSuffix(got, leaveScreen) {
					t.Errorf("drawn %q", got)
				}
				if stderr.String() != tt.want {
					t.Errorf("stderr %q, want %q", stderr.String(), tt.want)
				}
			})
		})
	}
}
