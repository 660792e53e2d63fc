//go:build !linux

package agentcmd

func beIdle() error { return nil }
