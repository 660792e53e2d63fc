package pleg

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

func TestCacheNewerThan(t *testing.T) {
	zero := time.Time{}
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	named := &container.PodStatus{UID: "p", Name: "p"}
	tests := map[string]struct {
		before func(c *Cache)
		wanted time.Time
		after  func(c *Cache) // nil: it must not block
		blocks bool           // even after after
	}{
		"first sync, nothing relisted":     {func(*Cache) {}, zero, func(*Cache) {}, true},
		"first sync, entry without relist": {func(c *Cache) { c.Set("p", named, nil, at(1)) }, zero, nil, false},
		"first sync, no entry, relisted":   {func(c *Cache) { c.UpdateTime(at(1)) }, zero, nil, false},
		"equal does not pass at once":      {func(c *Cache) { c.UpdateTime(at(5)) }, at(5), func(*Cache) {}, true},
		"equal wakes by relist":            {func(*Cache) {}, at(5), func(c *Cache) { c.UpdateTime(at(5)) }, false},
		"equal wakes by Set":               {func(*Cache) {}, at(5), func(c *Cache) { c.Set("p", named, nil, at(5)) }, false},
		"equal wakes by observation":       {func(*Cache) {}, at(5), func(c *Cache) { c.SetObservedTime("p", at(5)) }, false},
		"older does not wake":              {func(*Cache) {}, at(5), func(c *Cache) { c.Set("p", named, nil, at(4)); c.UpdateTime(at(4)) }, true},
		"Delete does not wake":             {func(c *Cache) { c.Set("p", named, nil, at(1)) }, at(5), func(c *Cache) { c.Delete("p") }, true},
		"another pod does not wake":        {func(*Cache) {}, at(5), func(c *Cache) { c.Set("q", named, nil, at(9)) }, true},
		"modified after":                   {func(c *Cache) { c.Set("p", named, nil, at(6)) }, at(5), nil, false},
		"observed after": {
			func(c *Cache) { c.Set("p", named, nil, at(1)); c.SetObservedTime("p", at(6)) }, at(5), nil, false,
		},
		"old entry, newer relist": {func(c *Cache) { c.Set("p", named, nil, at(1)); c.UpdateTime(at(6)) }, at(5), nil, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := NewCache()
				tt.before(c)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() {
					_, err := c.GetNewerThan(ctx, "p", tt.wanted)
					done <- err
				}()
				synctest.Wait()
				if tt.after == nil != (len(done) == 1) {
					t.Errorf("blocks at first: %v", len(done) == 0)
				}
				if tt.after != nil {
					tt.after(c)
					synctest.Wait()
				}
				if tt.blocks != (len(done) == 0) {
					t.Errorf("blocks at the end: %v, want %v", len(done) == 0, tt.blocks)
				}
				cancel()
				if err := <-done; tt.blocks != errors.Is(err, context.Canceled) {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}
