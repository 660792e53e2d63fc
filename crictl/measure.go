package crictl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A request is one RPC to be made.
type request struct {
	method string // full name, /runtime.v1.RuntimeService/Version
	object string // id it is about
	msg    proto.Message
}

// unary makes one unary call and measures it.
func (c *Client) unary(ctx context.Context, req request, into decoder) Call {
	return c.measure(ctx, req, into, func(ctx context.Context, r *reply) error {
		return c.conn.Invoke(ctx, req.method, req.msg, r)
	})
}

// ask makes one unary call with generated types. object is the id that the call is about, or empty.
func (c *Client) ask(ctx context.Context, method, object string, msg, resp proto.Message) Call {
	return c.unary(ctx, request{method: method, object: object, msg: msg}, &message{Message: resp})
}

// stream makes one server-streaming call, feeds every message to the decoder and measures the whole. One deadline holds
// for all of it, as in the kubelet.
func (c *Client) stream(ctx context.Context, req request, into decoder) Call {
	return c.measure(ctx, req, into, func(ctx context.Context, r *reply) error {
		s, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, req.method)
		if err != nil {
			return err
		}
		// io.EOF from SendMsg means that the server has ended the stream already; RecvMsg then returns the reason.
		if err := s.SendMsg(req.msg); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err := s.CloseSend(); err != nil {
			return err
		}
		for {
			if err := s.RecvMsg(r); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
		}
	})
}

func (c *Client) measure(
	parent context.Context, req request, into decoder, do func(context.Context, *reply) error,
) Call {
	call := Call{Method: path.Base(req.method), Object: req.object, Start: time.Now(), Code: OK}
	ctx, cancel := context.WithTimeout(parent, c.timeout)
	defer cancel()
	if c.late != nil {
		defer time.AfterFunc(c.timeout/2, c.late).Stop()
	}

	r := &reply{into: into}
	err := do(ctx, r)
	call.Elapsed = time.Since(call.Start)
	call.Bytes = r.bytes
	if err == nil {
		return call
	}
	st := status.Convert(err)
	call.Code = Code(st.Code().String())
	text := st.Message()
	switch {
	case r.err != nil:
		call.Code = Internal
		text = "the answer could not be decoded: " + r.err.Error()
	case st.Code() == codes.DeadlineExceeded || st.Code() == codes.Canceled:
		call.Code, text = c.classifyEnd(parent, ctx, call.Code, text)
	case st.Code() == codes.ResourceExhausted:
		if size, ok := refusedSize(text); ok {
			call.Bytes = size
		}
	}
	call.Err = printable(text)
	return call
}

// classifyEnd distinguishes the meanings of DeadlineExceeded and Canceled: the whole command ended (Canceled), there
// was no answer in time (DeadlineExceeded), or the runtime returned the code long before our deadline (Unknown):
// something behind it was too slow, but it answered. A runtime that honours the deadline that gRPC sends may end the
// call slightly before this side does; so the last tenth of the time counts as reached.
func (c *Client) classifyEnd(parent, ctx context.Context, code Code, text string) (Code, string) {
	due, _ := ctx.Deadline()
	end, limited := parent.Deadline()
	switch {
	case c.closed.Load(), errors.Is(ctx.Err(), context.Canceled):
		return Canceled, text
	case ctx.Err() == nil && time.Until(due) > c.timeout/10:
		return Unknown, "the runtime answered " + string(code) + ": " + text
	}
	if strings.HasPrefix(text, "stream terminated by RST_STREAM") {
		text = context.DeadlineExceeded.Error() // the runtime's end of the same deadline was a moment faster
	}
	if limited && !end.After(due) {
		return Canceled, text
	}
	return DeadlineExceeded, text
}

// refusedSize reads the size out of gRPC's two refusals:
//
//	trying to send message larger than max (20971520 vs. 16777216)
//	grpc: received message larger than max (20971520 vs. 16777216)
func refusedSize(text string) (size int, ok bool) {
	_, rest, _ := strings.Cut(text, "larger than max (")
	n, err := fmt.Sscanf(rest, "%d vs. ", &size)
	return size, n == 1 && err == nil
}

// oversized reports whether the call failed because its answer was larger than one side's message limit. A
// ResourceExhausted of another kind, such as too many requests, is not helped by smaller lists.
func oversized(call Call) bool {
	return call.Code == ResourceExhausted && strings.Contains(call.Err, "larger than max")
}
