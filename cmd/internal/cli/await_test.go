package cli_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/cmd/internal/cli"
)

func TestAwait(t *testing.T) {
	tests := []struct {
		name string
		work func(context.Context) int
		want int
		err  string
	}{
		{"answers", func(context.Context) int { return 7 }, 7, ""},
		{"hangs", func(context.Context) int { time.Sleep(time.Hour); return 7 }, 0, "context deadline exceeded"},
		{"panics", func(context.Context) int { panic(errors.New("no such row")) }, 0, "a fault of kdiag's own: no such row"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				got, err := cli.Await(ctx, tt.work)
				text := ""
				if err != nil {
					text = err.Error()
				}
				if got != tt.want || text != tt.err {
					t.Errorf("Await gives %d, %q; want %d, %q", got, text, tt.want, tt.err)
				}
				time.Sleep(2 * time.Hour) // what was left behind ends
			})
		})
	}
}
