// Package klog reads what klog writes: the header of a text line, the message with its key and value pairs, and the JSON
// form. It knows the library as the kubelet used it from 1.5 to today. It does not know what stands in front of a line
// (package textlog) nor what a message means (package signature).
//
// Nothing here fails: text that is cut, wrapped or pasted through a web page gives as much as is in it.
package klog
