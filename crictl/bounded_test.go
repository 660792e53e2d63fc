package crictl

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestBounded(t *testing.T) {
	errLook := errors.New("no such file")
	tests := []struct {
		name string
		look func() (string, error)
		want string
		err  string
	}{
		{"answers", func() (string, error) { return "x", nil }, "x", ""},
		{"fails", func() (string, error) { return "", errLook }, "", errLook.Error()},
		{"hangs", func() (string, error) { time.Sleep(time.Hour); return "x", nil }, "", errStuck.Error()},
		{"panics", func() (string, error) { panic("index out of range") }, "", "a fault of kdiag's own: index out of range"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, err := bounded(t.Context(), time.Second, tt.look)
				text := ""
				if err != nil {
					text = err.Error()
				}
				if got != tt.want || text != tt.err {
					t.Errorf("bounded gives %q, %q; want %q, %q", got, text, tt.want, tt.err)
				}
				time.Sleep(2 * time.Hour) // what was left behind ends
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := bounded(ctx, time.Minute, func() (string, error) { <-t.Context().Done(); return "", nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
