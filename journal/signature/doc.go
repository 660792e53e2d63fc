// Package signature knows what the log lines of a Kubernetes node mean: a catalogue of the messages that matter when a
// node is not ready, and a matcher that finds all of them in one pass.
//
// A signature is one meaning. It has as many literals as there are wordings: the kubelet alone has said "skipping pod
// synchronization" in six ways since version 1.5. A literal leaves out a first letter whose case has changed, and never
// crosses a quote that JSON would escape.
//
// The package reads messages, not log formats: time stamps, prefixes and wrapped lines are the business of the callers. A
// message may come with its prefixes and its klog header or without. What it names, such as a container or a task,
// is read leniently: a field that is cut short or malformed stays empty.
//
// Left out on purpose: whatever healthy nodes print all day. "shim disconnected" ends every container of containerd 1.x,
// NotFound is the usual race with a removal, CrashLoopBackOff is trouble of the application.
package signature
