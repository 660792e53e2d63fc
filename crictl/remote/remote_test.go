package remote

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
)

// TestReconnect counts the attempts to connect within two minutes, at a kubelet's pace and at one sixty times as fast.
func TestReconnect(t *testing.T) {
	for longest, most := range map[time.Duration]int64{0: 60, 50 * time.Millisecond: 3600} {
		synctest.Test(t, func(t *testing.T) {
			var attempts atomic.Int64
			s, err := Dial("/run/cri.sock", Options{
				Timeout: time.Second, Reconnect: longest, Log: logr.Discard(),
				Dialer: func(context.Context, string) (net.Conn, error) {
					attempts.Add(1)
					return nil, errors.New("refused")
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for range 1200 {
				_, _ = s.Version(t.Context()) // after a failed attempt gRPC connects again only for a call
				time.Sleep(100 * time.Millisecond)
			}
			if n := attempts.Load(); n < most/3 || n > most {
				t.Errorf("with %v: %d attempts, want %d to %d", longest, n, most/3, most)
			}
		})
	}
}
