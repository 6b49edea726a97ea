-- The requests of a file of requests with equal lengths, one after the other, for wrk.
local requests, last = {}, 0

function init(arguments)
   local size, file = tonumber(arguments[2]), assert(io.open(arguments[1], "rb"))
   for request in function() return file:read(size) end do
      requests[#requests + 1] = request
   end
   file:close()
end

function request()
   last = last % #requests + 1
   return requests[last]
end
