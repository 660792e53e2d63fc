// Package signature has the log messages of a Kubernetes node that matter when the node is not ready: a
// catalogue of them, and a matcher that finds all of them in one pass.
//
// A signature is one meaning. It has a literal for each wording: the kubelet alone has printed "skipping pod
// synchronization" in six ways since version 1.5. A literal leaves out a first letter whose case has changed, and
// contains no quote that JSON would escape. The catalogue is in the directory of that name, one file for each lane,
// with the documentation of each signature.
//
// The package reads messages, not log formats: callers remove time stamps and prefixes, and join wrapped lines. A
// message may have its prefixes and its klog header or not. What it names, such as a container or a task, is read
// leniently: a field that is cut short or malformed stays empty.
//
// Messages that healthy nodes print all day are left out on purpose. "shim disconnected" is printed for every
// container of containerd 1.x that ends, NotFound is the usual race with a removal, and CrashLoopBackOff is caused by
// the application.
package signature
