//go:build !linux

package capture

import "errors"

func openProcess(int) (fd int, err error) { return -1, errors.ErrUnsupported }

func sendDump(int) error { return errors.ErrUnsupported }
