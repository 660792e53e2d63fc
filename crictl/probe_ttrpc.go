package crictl

import (
	"bytes"
	"context"
	"io"
	"time"
)

// quietFor is how long a server may be silent before it is asked whether it speaks ttrpc. A gRPC server that runs answers in less.
const quietFor = 500 * time.Millisecond

// A message of ttrpc begins with four bytes of length, four of the stream, one of the type and one of flags (channel.go in
// github.com/containerd/ttrpc). The question is a request without content, for which a server has no service; the answer's header
// has the same stream and the type of a response.
const (
	ttrpcQuestion = "\x00\x00\x00\x00\x00\x00\x00\x01\x01\x00"
	ttrpcAnswer   = "\x00\x00\x00\x01\x02" // from the fifth byte on
)

// speaksTTRPC asks in ttrpc, on a connection of its own, once the server has been silent for a while. containerd's socket for its
// shims takes HTTP/2's hello for the header of a message of 1.3 GB, waits for the rest of it, and looks as if nobody were there.
func speaksTTRPC(ctx context.Context, path string) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(quietFor):
	}
	conn, err := dialUnix(ctx, path)
	if err != nil {
		return false
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := io.WriteString(conn, ttrpcQuestion); err != nil {
		return false
	}
	header := make([]byte, len(ttrpcQuestion))
	_, err = io.ReadFull(conn, header)
	return err == nil && bytes.Equal(header[4:9], []byte(ttrpcAnswer))
}
