//go:build !linux

package host

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// Nodes run Linux. Elsewhere kdiag reads logs, dumps, archives and clusters, and looks at no host.

func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func listenerOf(net.Conn) int { return 0 }

func measure(string, string) reply { return reply{Err: errors.ErrUnsupported.Error()} }

func openTemporary(string) (*os.File, error) { return nil, syscall.EOPNOTSUPP }

func discipline() (bool, time.Duration, error) { return false, 0, errors.ErrUnsupported }

func readUntrusted(string, string, int) (string, error) { return "", errors.ErrUnsupported }
